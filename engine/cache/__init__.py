"""Cache policies: one file a method."""
