"""The engine: one loop for every algorithm, and who takes part in its rounds."""
