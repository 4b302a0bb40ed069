"""Cache policies: what a step recomputes and what it reuses."""
