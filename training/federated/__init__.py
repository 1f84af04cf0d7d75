"""Federated training: client updates, DP-FTRL, server steps, held-out clients."""
