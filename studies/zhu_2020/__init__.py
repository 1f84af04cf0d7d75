"""Tables and figures of Zhu et al. 2020."""
