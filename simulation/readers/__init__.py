"""Readers: from what the user brings to columns of client words."""
