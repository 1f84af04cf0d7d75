"""DP-FTRL: noise on model updates, participation, and the cost of both."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "blt": ["Blt", "optimal"],
        "correlated_noise": ["BandedNoise", "BltNoise", "CorrelatedNoise"],
        "model_updates": ["ClippedUpdate", "UpdateMechanism", "UpdateSum"],
        "plan": ["plan_of"],
        "rotated_updates": ["RotatedUpdate"],
        "toeplitz": ["Matrix", "SquareRoot"],
        "tree_aggregation": ["observed_zcdp", "zcdp"],
        "update_noise": ["AdaptiveClip", "AddedNoise", "GaussianNoise", "TreeNoise"],
    },
)
