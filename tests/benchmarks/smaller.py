"""Runs a benchmark with its fixed sizes made smaller: `python -m ... NAME FLAGS`."""

import dataclasses
import functools
import importlib
import sys
from typing import Any

from absl import app

# Attributes of a benchmark's module.
_SMALLER: dict[str, dict[str, Any]] = {
    "randomizers": {
        "_GBOARD": {"epsilon": 10.0, "domain_size": 10_001},
        "_GBOARD_REPORTS": 10**5,
        "_DISTINCT_ITEMS": 1000,
        "_VALUES_ONE_BY_ONE": 10**6,
        "_EPSILONS": (4.0, 8.0),
    },
}


def main() -> None:
    """Runs the benchmark that the first argument names."""
    name = sys.argv.pop(1)
    module = importlib.import_module(f"benchmarks.{name}")
    for attribute, value in _SMALLER.get(name, {}).items():
        getattr(module, attribute)  # exists
        setattr(module, attribute, value)
    if name == "scale":
        # Ray is started once, for the table of costs.
        module.measure_memory = functools.partial(_without_ray, module.measure_memory)
    app.run(module.CASE.main, flags_parser=module.CASE.parse)


def _without_ray(measure: Any, options: Any) -> Any:
    return measure(dataclasses.replace(options, actors=()))


if __name__ == "__main__":
    main()
