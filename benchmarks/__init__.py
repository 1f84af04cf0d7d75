"""Benchmarks: a case a module, run by one harness. Not installed."""
