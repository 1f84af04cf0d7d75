"""Sequence Fragment Puzzle (Apple 2017): algorithm and options."""
