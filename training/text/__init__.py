"""Training text: batches, windows, and hashes by which texts are compared."""
