"""Unmaskers: one file a rule for what is committed in a step."""
