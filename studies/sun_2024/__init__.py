"""Tables and figures of Sun et al. 2024."""
