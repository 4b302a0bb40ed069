"""Quantities that policies derive from a checkpoint before a run."""
