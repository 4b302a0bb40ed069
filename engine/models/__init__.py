"""Model adapters and the arithmetic they share."""
