"""Sums by two servers that do not collude (Corrigan-Gibbs and Boneh 2017, Prio)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "aggregator": ["TwoServers"],
    },
)
