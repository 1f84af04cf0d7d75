"""Locally private reports: plans, statements, and the policy of a device."""
