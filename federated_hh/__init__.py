"""Federated analytics for keyboards: words in common, statistics, and accounting."""
