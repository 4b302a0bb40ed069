"""Accuracy measurements and recorded examples."""
