"""The exam, shared among processes and resumed from the samples that are kept."""
