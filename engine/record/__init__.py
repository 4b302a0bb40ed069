"""Recorders: what a run keeps beside its token events."""
