"""Training text: batches, windows, and hashes for comparing texts."""
