"""Set union at a trusted aggregator: algorithm, options and report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "algorithm": ["SetUnion"],
        "options": ["SetUnionOptions"],
    },
)
