"""A keyboard that uses a model: simulated typing, and the typing saved."""
