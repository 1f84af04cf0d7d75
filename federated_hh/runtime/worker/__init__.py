"""TFF's worker process: its options, its start, and its end."""
