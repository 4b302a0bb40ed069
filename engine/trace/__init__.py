"""Recorded runs: the trace, its file format and its metrics."""
