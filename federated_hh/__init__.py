"""Private heavy hitters and federated statistics."""
