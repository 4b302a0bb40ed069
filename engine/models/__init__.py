"""Model adapters: the only code that knows a checkpoint."""
