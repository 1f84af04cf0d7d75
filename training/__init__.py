"""Next-word models trained with DP-FTRL, and their evaluation on keyboards."""
