"""Handlers: what the page's buttons, its server functions and the API do."""
