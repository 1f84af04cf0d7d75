"""The directory of a run: flags, record, results, and secrets apart."""
