"""Seeds, noise keys, streams that follow from them, and exact integer noise."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "identities": ["canonical", "identity"],
        "integer_noise": ["Independent", "IntegerNoise", "Tree"],
        "noise_keys": ["NoiseKey", "NoiseKeyError"],
        "streams": ["KeyedBits", "Stream"],
    },
)
