"""Fits of synthetic clients' distribution to a population."""
