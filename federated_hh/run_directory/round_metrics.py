"""The metrics of a round, released ones and the simulator's apart."""

import collections
import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class RoundMetrics:
    """The metrics of a round, in two parts that are kept apart.

    Attributes:
        released: Metrics that the run's guarantee covers, or that are public anyway,
            by name; read-only.
        simulator: The simulator's knowledge, such as exact sums before noise or
            thresholds, and measured times, by name; read-only. No guarantee covers it.

    Raises:
        ValueError: A name is in both parts.
    """

    released: Mapping[str, int | float]
    simulator: Mapping[str, int | float]

    def __post_init__(self):
        for name in self.released:
            if name in self.simulator:
                raise ValueError(f"{name} is in both parts: released and simulator")
        for part in ("released", "simulator"):
            copy = types.MappingProxyType(dict(getattr(self, part)))
            object.__setattr__(self, part, copy)

    def combined(self) -> collections.OrderedDict[str, int | float]:
        """Returns all metrics by name, the released ones first."""
        return collections.OrderedDict(**self.released, **self.simulator)
