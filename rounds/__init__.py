"""The engine: one loop for every algorithm, above simulation and privacy."""
