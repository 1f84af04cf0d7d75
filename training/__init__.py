"""DP-FTRL training of keyboard language models."""
