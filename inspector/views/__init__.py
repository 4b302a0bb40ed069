"""Views: events and traces as the plain data that the page draws."""
