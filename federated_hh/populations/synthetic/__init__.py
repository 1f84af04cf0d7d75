"""Synthetic clients: words and sentences of a known law."""
