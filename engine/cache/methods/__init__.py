"""Cache policies, one Python file and one Markdown file a method."""
