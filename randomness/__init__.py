"""Random streams that are a function of seed, key and purpose, and exact noise."""
