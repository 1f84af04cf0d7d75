"""Baselines: n-grams, the law of synthetic text, and models of other runs."""
