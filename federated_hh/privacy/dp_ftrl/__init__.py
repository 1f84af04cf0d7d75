"""DP-FTRL: noise on model updates, who takes part when, and what both cost."""
