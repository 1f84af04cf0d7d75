"""Seeds, noise keys, streams that follow from them, and exact integer noise."""
