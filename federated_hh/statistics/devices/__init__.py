"""Devices that verify, budget and answer queries, one by one or in arrays."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "aggregation": ["Aggregator", "SecureSum"],
        "budget": ["Accountant"],
        "fleet": ["DeviceFleet", "Fleet"],
        "vector_fleet": ["VectorFleet"],
    },
)
