"""Batches: many prompts under several settings, with results that can be resumed."""
