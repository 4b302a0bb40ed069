"""The decoding engine; empty on purpose, so that `import engine.trace.trace` loads no torch."""
