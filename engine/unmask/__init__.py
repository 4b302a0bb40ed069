"""Unmaskers: which candidate tokens a step commits."""
