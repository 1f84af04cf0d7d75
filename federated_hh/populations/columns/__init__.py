"""Clients' data as columns on disk, checked before they are believed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "client_text": ["ClientText"],
        "client_words": ["ClientWords"],
    },
)
