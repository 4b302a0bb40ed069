"""Slices: parts of a view's arrays that the page asks for, cut and reduced on the server."""
