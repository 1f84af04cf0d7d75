"""Local randomizers: what a device sends, and the exact sum of many reports."""
