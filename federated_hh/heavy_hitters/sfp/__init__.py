"""Sequence Fragment Puzzle (Apple 2017): algorithm and options."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "algorithm": ["SequenceFragmentPuzzle"],
    },
)
