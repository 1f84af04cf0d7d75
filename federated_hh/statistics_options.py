"""What interactive statistics are asked for; `run_statistics` has the flags."""

import dataclasses

from options.fields import OptionError, check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatisticsOptions:
    """What is asked of the devices, and what they allow.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    strategy: str = option(
        "interactive",
        "How popular n-grams are found. interactive: a query a word, each about what "
        "follows the n-grams that the last one found. static: one query about all.",
        choices=("interactive", "static"),
    )
    ngram_words: int = option(
        3, "Words of the longest n-grams.", least=1, most=6, why="each is a query"
    )
    num_tokens: int = option(
        100,
        "Known words: the most frequent English ones. The static strategy asks about "
        "all their n-grams at once.",
        least=1,
        most=10_000,
    )
    max_prefixes: int = option(
        50, "The most n-grams that a query finds.", least=1, most=100_000
    )
    false_positives: float = option(
        0.1,
        "How many n-grams that no device has a query finds on average, at most.",
        above=0,
        most=1000,
    )
    cohorts: str = option(
        "disjoint",
        "Who is asked. disjoint: each query goes to an equal part of the devices, and "
        "none is asked twice. everybody: each query goes to all, who divide --epsilon "
        "among the queries.",
        choices=("disjoint", "everybody"),
    )
    epsilon: float = option(
        1.0,
        "Epsilon of all cohort aggregates that a device's reports are in; a device "
        "answers nothing beyond it. At most six digits behind the point.",
        above=0,
        most=10,
    )
    local_epsilon: float = option(
        6.0,
        "The most that a report may have as its local epsilon (replacement); less is "
        "used where --epsilon needs it. At most six digits behind the point.",
        above=0,
        most=20,
    )
    delta: float = option(
        1e-6, "Delta of the cohort aggregate of a query.", least=1e-30, below=1
    )
    composition: str = option(
        "basic",
        "How devices add up what their answers cost; 'advanced' costs --delta once "
        "more, 'renyi' costs it once in all.",
        choices=("basic", "advanced", "renyi"),
    )
    randomizer: str = option(
        "asymmetric",
        "How reports are randomized.",
        choices=("asymmetric", "symmetric"),
    )
    devices: str = option(
        "real",
        "real: each device has a store, verifies queries, and keeps its budget and its "
        "log. vectorised: the same decisions in arrays, for a million devices; the sum "
        "of reports is drawn.",
        choices=("real", "vectorised"),
    )
    aggregation: str = option(
        "secure_sum",
        "Who adds reports up. secure_sum: TFF's secure sum. two_servers: two processes "
        "that each get a share of a report and check its proof, with --devices=real.",
        choices=("secure_sum", "two_servers"),
    )
    drop_out: float = option(
        0.0,
        "With --aggregation=two_servers, the share of the devices that are gone before "
        "both servers have their messages; they have spent their budget.",
        least=0,
        below=1,
    )
    show_device_log: int | None = option(
        None,
        "Show the log of this device, from 0, with --devices=real: every query that it "
        "got, what became of it, and what left the device.",
        least=0,
        most=2**31 - 1,
    )
    max_k: int = option(
        100,
        "N-grams found are compared with the true top K.",
        least=1,
        most=1_000_000,
    )

    def __post_init__(self):
        check(self)
        for name in ("epsilon", "local_epsilon"):
            if round(getattr(self, name), 6) != getattr(self, name):
                raise OptionError(
                    self, f"{{{name}=}} has more than six digits behind the point"
                )
        cells = 1 + self.num_tokens ** (self.ngram_words - 1) * (2 + self.num_tokens)
        if self.strategy == "static" and cells > 2**24:
            raise OptionError(
                self,
                "{strategy=} with {num_tokens=} and {ngram_words=} asks about {cells:,}"
                " cells at once; a report has at most 16,777,216: take fewer words",
                cells=cells,
            )
        is_shared = self.aggregation == "two_servers"
        if is_shared and self.devices != "real":
            raise OptionError(
                self,
                "{aggregation=} needs {devices=real}: vectorised devices draw the sum "
                "of their reports, so that there is nothing to share",
            )
        if self.drop_out and not is_shared:
            raise OptionError(self, "{drop_out=} needs {aggregation=two_servers}")
        if self.show_device_log is not None and self.devices != "real":
            raise OptionError(self, "{show_device_log} needs {devices=real}")

    @property
    def num_queries(self) -> int:
        """The most queries of the analysis."""
        return self.ngram_words if self.strategy == "interactive" else 1

    @property
    def query_epsilon(self) -> float:
        """Epsilon of the cohort aggregate of one query."""
        if self.cohorts == "disjoint":
            return self.epsilon
        return int(self.epsilon * 1e6 / self.num_queries) / 1e6
