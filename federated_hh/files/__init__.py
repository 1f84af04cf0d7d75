"""Files that are whole or not there, tables, and the code that a result depends on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "custom_parts": ["load", "load_function"],
        "progress": ["Progress"],
        "tables": ["read", "write"],
        "verified_files": ["PopulationError"],
    },
)
