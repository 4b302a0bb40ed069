"""Finding, downloading, reading and placing checkpoints."""
