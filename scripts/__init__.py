"""Entry points for set-up, tests, reproduction and benchmarks."""
