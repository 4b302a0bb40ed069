"""Types and helpers that every package uses: rows, events, devices, files, progress."""
