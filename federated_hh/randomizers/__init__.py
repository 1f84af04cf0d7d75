"""Local randomizers: what a client sends, and the exact sum of reports."""
