"""Hugging Face Spaces: the branch that is pushed to one, and runs on ZeroGPU."""
