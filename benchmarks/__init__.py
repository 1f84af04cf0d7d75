"""Benchmarks: what rounds, statements and sums cost. Not installed."""
