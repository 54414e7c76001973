"""Text to tokens, and a cursor over them."""
