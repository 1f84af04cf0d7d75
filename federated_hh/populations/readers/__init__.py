"""Readers of users' files: rows of any format as columns of clients."""
