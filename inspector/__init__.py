"""The inspector: the page, its handlers and its API; it never imports torch."""
