"""Options of the study of interaction, and the ways to ask that it compares."""

import dataclasses

from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from studies import study_options

# Popular: the true n-grams, or pairs, that most devices hold.
TOP = 100
SYNTHETIC = "synthetic English"


@dataclasses.dataclass(frozen=True)
class Approach:
    """A way to ask.

    Attributes:
        name: Name in tables and plots.
        strategy: See `StatisticsOptions`.
        cohorts: See `StatisticsOptions`.
        grid_buckets: The buckets of a static distribution.
    """

    name: str
    strategy: str
    cohorts: str
    grid_buckets: int = 1024


INTERACTIVE = Approach("interactive", "interactive", "everybody")
DISJOINT = Approach("interactive, one report a device", "interactive", "disjoint")
STATIC = Approach("static", "static", "everybody")
GRIDS = tuple(
    Approach(f"static, {buckets:,} buckets", "static", "everybody", buckets)
    for buckets in (256, 1024, 2048, 4096)
)


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag."""

    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship and ubuntu-irc; by "
        "default there is synthetic English only.",
    )
    client_numbers: tuple[str, ...] = option(
        ("25000", "100000", "400000"), "Numbers of synthetic devices."
    )
    num_tokens: int = option(
        100, "Known words: the most frequent English ones.", least=2, most=1000
    )
    epsilon: float = option(
        1.0,
        "Epsilon of all cohort aggregates that a device's reports are in.",
        above=0,
        most=10,
    )
    num_repeats: int = option(
        5,
        "Runs of each setting, with noise and samples of their own, for the intervals.",
        least=1,
        most=1000,
    )

    def __post_init__(self):
        super().__post_init__()
        for text in self.client_numbers:
            if not text.isdecimal() or not 100 <= int(text) <= 10**7:
                raise options_lib.OptionError(
                    self,
                    "{client_numbers=}: each has to be an integer in [100, 10,000,000]",
                )
