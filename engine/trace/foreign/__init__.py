"""Foreign runs: runs that another engine decoded, read from JSON and made into traces."""
