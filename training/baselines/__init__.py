"""Baselines: n-grams, the distribution of synthetic text, and other runs' models."""
