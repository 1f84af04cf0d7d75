"""Execution of TFF computations: in a worker, in this process, or on Ray."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "runtime": [
            "SecureSumError",
            "WorkerError",
            "computing",
            "set_default_worker",
            "tff_worker",
        ],
    },
)
