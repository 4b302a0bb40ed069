"""Defects and special rules of public implementations, as subclasses that repeat their runs."""
