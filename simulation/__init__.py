"""Populations, participation, the TFF runtime and run directories."""
