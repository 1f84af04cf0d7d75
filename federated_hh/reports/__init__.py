"""Report pages, plots, and the summary at the end of a run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "page": ["Page", "Section", "Summary"],
    },
)
