"""Settings of a run: specs, knobs, validation, derived plans and presets."""
