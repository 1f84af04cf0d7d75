"""A keyboard that uses a model: simulated typing, and what it saves."""
