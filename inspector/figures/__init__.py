"""Figures for notebooks and papers: one module a view, each with a function `figure` of a trace.

A figure shows the same numbers and colours as the page's view of that name. Its functions take
indices from 0, as in the arrays of a trace; axes and titles count from 1, as on the page.
"""
