"""Sessions: loaded models, queued runs, races and their limits."""
