"""Tests of the engine, the inspector and the page."""
