"""Advice: settings of a cache method that keep what a user wants kept, found by measuring."""
