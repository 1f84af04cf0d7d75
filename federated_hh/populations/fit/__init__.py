"""The law of synthetic clients that fits a population."""
