"""Interactive federated statistics (McMillan et al. 2022)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "options": ["StatisticsOptions"],
        "preparation": ["prepare"],
    },
)
