"""The page: its tabs, their components and the theme."""
