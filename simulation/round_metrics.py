"""What a round is described by, parted by what a run's guarantee covers."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class RoundMetrics:
    """The metrics of a round, by name.

    Attributes:
        released: What the run's guarantee covers: it follows from what the mechanism
            let through, and from what everybody may know.
        simulator: What only the simulator knows, such as exact counts, metrics on
            ground truth and seconds. No guarantee covers it.
    """

    released: Mapping[str, float]
    simulator: Mapping[str, float]
