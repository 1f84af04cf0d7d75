"""Amplification by shuffling and by aggregation: the best bound that is proved."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "amplification": [
            "Method",
            "Randomizer",
            "Reports",
            "amplify",
            "amplify_over_levels",
            "largest_local_epsilon",
            "minimum_reports",
        ],
    },
)
