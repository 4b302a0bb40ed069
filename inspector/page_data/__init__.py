"""Plain data for the page: messages, canvas tokens, step rows, summaries, sizes in words."""
