"""The decoding engine; empty on purpose, so that `import engine.trace` loads no torch."""
