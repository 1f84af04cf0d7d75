"""Set union at a trusted aggregator: its guarantee, noise and thresholds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "adaptive_gaussian": ["AdaptiveGaussian"],
        "mechanisms": ["NoisyTotals", "NoisyWeights"],
        "plan": ["WordWeights"],
        "weighted_gaussian": ["WeightedGaussian", "solve"],
    },
)
