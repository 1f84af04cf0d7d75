"""The options of interactive statistics; `run_statistics` has the flags."""

import dataclasses
import functools

from federated_hh.options.fields import OptionError, check, option

# Options of a topic in --help.
_kept_option = functools.partial(option, group="Evaluation")
_privacy_option = functools.partial(option, group="Privacy")
# By analysis: the approved identifier, the table, and the columns that are read.
APPROVED = {
    "ngrams": ("org.example.insights.keyboard-ngrams", "KeyboardNGrams", ("ngrams",)),
    "joint": (
        "org.example.insights.keyboard-ngrams-age",
        "KeyboardNGrams",
        ("ngrams", "age"),
    ),
    "distribution": (
        "org.example.insights.keyboard-seconds",
        "KeyboardNGrams",
        ("seconds",),
    ),
}
# Of a custom table, all of whose columns are read.
TABLE_IDENTIFIER, TABLE = "org.example.insights.device-table", "DeviceTable"
_LISTED = "; ".join(
    f"{identifier} ({' and '.join(columns)} of {table})"
    for identifier, table, columns in (
        *APPROVED.values(),
        (TABLE_IDENTIFIER, TABLE, ("all columns",)),
    )
)
_IN_POLICY = ("epsilon", "local_epsilon", "delta", "composition", "randomizer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatisticsOptions:
    """The questions to the devices, and the devices' limits.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    analysis: str = option(
        "ngrams",
        "The analysis, which also decides what devices allow. ngrams: popular n-grams. "
        "joint: pairs of an owner's age and a popular n-gram. distribution: the "
        "seconds between words.",
        choices=("ngrams", "joint", "distribution"),
    )
    strategy: str = option(
        "interactive",
        "interactive: each query depends on earlier answers; of n-grams one asks about "
        "the words that follow those found, of a distribution one splits the buckets "
        "with large counts. static: one query about all n-grams, or a fixed grid.",
        choices=("interactive", "static"),
    )
    recipe: tuple[str, ...] = option(
        (),
        "Recipe files, asked unchanged one after the other, instead of the queries of "
        "--analysis. Devices allow what --policy says, or what they allow of "
        "--analysis. A recipe without privacyBudget gets the largest one that the "
        "devices allow.",
    )
    policy: str | None = option(
        None,
        "File with the devices' policy: approved identifier, table, columns and limits "
        f"(shipped, by --analysis: {_LISTED}). --print_policy prints the one in use.",
    )
    print_policy: bool = option(
        False, "Print the devices' policy as a file for --policy, and stop."
    )
    table: str | None = option(
        None,
        "CSV file with the devices' custom table, instead of a population; --recipe "
        "asks about it. A row is an event: --user_column, then columns of numbers or "
        "texts. Each user is a device.",
    )
    ask_refused: bool = option(
        False,
        "Ask recipes that devices will refuse, so that the devices' logs show the "
        "refusal. By default the program stops before anything is asked.",
        group="Evaluation",
    )
    ngram_words: int = option(
        3,
        "Length of the longest n-grams, in words.",
        least=1,
        most=6,
        why="each is a query",
    )
    num_tokens: int = option(
        100,
        "Known words: the most frequent English ones. The static strategy asks about "
        "all their n-grams at once.",
        least=1,
        most=10_000,
    )
    max_prefixes: int = option(
        50,
        "Largest number of n-grams that the next query extends: those with the largest "
        "estimates.",
        least=1,
        most=100_000,
    )
    false_positives: float = _kept_option(
        0.1,
        "Largest average number of n-grams, or pairs with an age, that a query finds "
        "although no device holds them.",
        above=0,
        most=1000,
    )
    max_seconds: float = _kept_option(
        600.0,
        "Start of the last bucket of a distribution; the first starts at 0.",
        above=0,
        most=1e9,
        unit="seconds",
    )
    distribution_queries: int = option(
        4, "Number of queries of an interactive distribution.", least=1, most=50
    )
    first_buckets: int = option(
        16,
        "Number of equal buckets in a distribution's first query.",
        least=1,
        most=1000,
    )
    split_parts: int = option(
        8, "Number of equal parts that a bucket is split into.", least=2, most=100
    )
    split_stderrs: float = option(
        3.0,
        "A bucket is split if each part would be at least this many standard errors of "
        "an empty bucket.",
        above=0,
        most=1000,
    )
    grid_buckets: int = option(
        1024, "Number of equal buckets of a static distribution.", least=1, most=4096
    )
    cohorts: str = option(
        "auto",
        "Cohorts of the queries. disjoint: each query goes to an equal part of the "
        "devices, and none is asked twice. everybody: each query goes to all, who "
        "divide --epsilon among the queries. auto: everybody if a value then needs a "
        "quarter fewer holders to be found, or a recipe's minimum cohort needs it; "
        "else disjoint.",
        choices=("auto", "disjoint", "everybody"),
    )
    epsilon: float = _privacy_option(
        1.0,
        "Epsilon of all cohort aggregates with a device's reports, together; a device "
        "answers nothing beyond it. At most six decimals.",
        above=0,
        most=10,
    )
    local_epsilon: float = _privacy_option(
        6.0,
        "Largest local epsilon of a report (replacement); less is used if --epsilon "
        "needs it. At most six decimals.",
        above=0,
        most=20,
    )
    delta: float = _privacy_option(
        1e-6,
        "Delta of the cohort aggregate of a query.",
        least=1e-30,
        below=1,
    )
    composition: str = _privacy_option(
        "basic",
        "Composition of answers' costs by the devices. 'advanced' spends --delta once "
        "more, 'renyi' spends it once in all.",
        choices=("basic", "advanced", "renyi"),
    )
    randomizer: str = _privacy_option(
        "asymmetric",
        "Local randomizer of reports.",
        choices=("asymmetric", "symmetric"),
    )
    devices: str = _privacy_option(
        "real",
        "real: each device has a store, verifies queries, and keeps its budget and its "
        "log. vectorised: the same decisions in arrays, for a million devices; the sum "
        "of reports is drawn.",
        choices=("real", "vectorised"),
    )
    aggregation: str = _privacy_option(
        "secure_sum",
        "Aggregator of the reports. secure_sum: TFF's secure sum. two_servers: two "
        "processes that each get a share of a report and check its proof, with "
        "--devices=real.",
        choices=("secure_sum", "two_servers"),
    )
    drop_out: float = option(
        0.0,
        "Share of the devices that drop out before both servers have their messages, "
        "after spending their budget; with --aggregation=two_servers.",
        least=0,
        below=1,
    )
    show_device_log: int | None = _privacy_option(
        None,
        "Number, from 0, of a device whose log is shown: each query that it got, its "
        "decision and its report; with --devices=real.",
        least=0,
        most=2**31 - 1,
    )
    max_k: int = _kept_option(
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
                    self, f"{{{name}=}} has more than six decimals; round it"
                )
        self._check_cells()
        if self.table and not (self.recipe or self.print_policy):
            raise OptionError(
                self,
                "{table=} needs {recipe}: a file with the question to its devices; "
                "{print_policy} shows what they allow",
            )
        for name in _IN_POLICY if self.policy else ():
            if getattr(self, name) != getattr(StatisticsOptions, name):
                raise OptionError(
                    self,
                    f"{{{name}=}} does not go with {{policy=}}, which has the devices' "
                    "limits; change the file",
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

    def _check_cells(self) -> None:
        if self.recipe or self.analysis == "distribution":
            return
        cells, named = self._most_cells()
        if cells > 2**24:
            raise OptionError(
                self,
                f"{{strategy=}} with {{analysis=}}, {named} asks about up to "
                "{cells:,} cells at once; a report has at most 16,777,216: take fewer",
                cells=cells,
            )

    def _most_cells(self) -> tuple[int, str]:
        """Returns the cells of the largest query of n-grams, and the options' names."""
        prefixes = self.num_tokens ** (self.ngram_words - 1)
        named = "{num_tokens=} and {ngram_words=}"
        if self.strategy == "interactive" and prefixes > self.max_prefixes:
            prefixes, named = self.max_prefixes, "{num_tokens=} and {max_prefixes=}"
        cells = 1 + prefixes * (2 + self.num_tokens)
        cells *= 8 if self.analysis == "joint" else 1
        return cells, named

    @property
    def false_positive_chance(self) -> float:
        """Chance of an empty cell to be found, of the largest query."""
        is_table = self.recipe or self.analysis == "distribution"
        cells = 100 if is_table else self._most_cells()[0]
        return min(0.5, self.false_positives / cells)

    @property
    def num_queries(self) -> int:
        """The most queries of the analysis that devices answer."""
        if self.strategy == "static":
            return 1
        if self.analysis == "distribution":
            return self.distribution_queries
        return self.ngram_words
