"""Tables and figures of McMillan et al. 2022."""
