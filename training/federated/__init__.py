"""Federated training: client updates, DP-FTRL, server steps, held-out clients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "dp_ftrl": ["DpFtrl"],
        "options": ["TrainingOptions"],
        "server_optimizers": ["Adam", "Sgdm", "Yogi"],
    },
)
