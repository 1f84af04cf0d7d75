"""The metrics of a round, parted by who may know them."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class RoundMetrics:
    """What a round shows beside its result.

    Attributes:
        released: By name: functions of what the mechanism released, of its parameters
            and of nothing else; a privacy guarantee covers them.
        simulator: By name: what only the simulator knows, such as exact counts; no
            guarantee covers them.
    """

    released: Mapping[str, float]
    simulator: Mapping[str, float]
