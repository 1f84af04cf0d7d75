"""Tables and figures of Xu et al. 2023, and the strategy of its section 2.5."""
