"""Tests of the page, its handlers and its views."""
