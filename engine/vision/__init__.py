"""Images for models that take them: files to crops, the vision tower, rows of a prompt."""
