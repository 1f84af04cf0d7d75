"""Options of a population's source and contents."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "file_options": ["FORMATS", "Format"],
        "population_options": ["PopulationOptions"],
    },
)
