"""Amplification by shuffling and by aggregation: the best bound that is proved."""
