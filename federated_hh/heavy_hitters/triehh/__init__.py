"""TrieHH (Zhu et al. 2020): algorithm, options and report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "algorithm": ["TrieHH"],
        "options": ["TrieHHOptions"],
    },
)
