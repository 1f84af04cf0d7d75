"""Recipes: the queries that an analyst sends, and the data they read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "contents": ["Content"],
        "recipe": ["Recipe", "RecipeError"],
        "store": ["EventStore"],
    },
)
