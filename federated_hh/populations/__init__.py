"""Clients' words and sentences, prepared once and kept on disk."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "population": ["prepare"],
        "vocabulary": ["Vocabulary"],
    },
)
