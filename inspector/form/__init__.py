"""The settings form: widgets, presets and the choice of a model."""
