"""Server guards: checks of incoming requests, and the rate of streamed messages."""
