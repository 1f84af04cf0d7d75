"""LDP TrieHH (Sun et al. 2024): algorithm, options, results and report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "algorithm": ["LdpTrieHH"],
        "options": ["LdpTrieHHOptions"],
    },
)
