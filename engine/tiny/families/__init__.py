"""Problem families of the embedded models, one Python file and one Markdown file a family."""
