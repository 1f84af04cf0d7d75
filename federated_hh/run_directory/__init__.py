"""The directory of a run: flags, record, results, and secrets apart."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "directory": ["RunDirectory", "begin_or_resume"],
        "files": ["RunDirectoryError"],
    },
)
