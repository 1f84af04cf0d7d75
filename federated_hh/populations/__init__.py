"""Clients' words and sentences, prepared once and kept on disk."""
