"""Devices that verify, budget and answer queries, one by one or in arrays."""
