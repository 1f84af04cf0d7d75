"""The comparison of all algorithms that find words."""
