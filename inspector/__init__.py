"""The inspector: the web page, its handlers and its API. It does not import torch."""
