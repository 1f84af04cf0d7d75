"""Synthetic clients: words and sentences from a known distribution."""
