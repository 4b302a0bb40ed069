"""The decoding loop and what one step consists of."""
