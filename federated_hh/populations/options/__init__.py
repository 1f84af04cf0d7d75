"""Options that say what a population is made of."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "file_options": ["FORMATS", "Format"],
        "population_options": ["PopulationOptions"],
    },
)
