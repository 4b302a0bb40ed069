"""Batches and searches: their handlers and API endpoints, and where their prompts come from."""
