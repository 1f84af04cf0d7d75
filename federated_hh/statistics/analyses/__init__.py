"""Analyses: recipes that depend on earlier answers, and their reports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "analysis": ["Analysis"],
        "distribution": ["Distribution"],
        "joint": ["Joint"],
        "ngrams": ["NGrams"],
    },
)
