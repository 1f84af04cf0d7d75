"""Locally private reports: plans, statements, and the policy of a device."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "device_policy": ["Limits", "Policy"],
        "device_reports_plan": ["DeviceReports", "MinimumCohort"],
        "reports": ["LdpTrieHHReports", "LocalReports", "OneReport"],
        "sketch_plan": ["SketchReports"],
    },
)
