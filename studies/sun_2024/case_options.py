"""Options and settings of the case study of Sun et al. 2024, Section 4."""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option, option_of
from federated_hh.populations.options import population_options
from federated_hh.privacy.local import ldp_triehh_settings
from studies import study_options

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

# The clients of the paper's settings are 15 million; some more take part in the
# counting task, and a few type no target word.
_CLIENTS = 15_500_000
_of_population = functools.partial(option_of, population_options.PopulationOptions)
_of_ldp_triehh = functools.partial(option_of, ldp_triehh_settings.LdpTrieHHSettings)
# Words of the English list.
_LIST_WORDS = 318_465
# Clients who are people who blogged.
BLOGGERS = "bloggers"


@dataclasses.dataclass(frozen=True)
class PaperSetting:
    """A row of a table, or a point of a plot, as the paper has it.

    Attributes:
        name: Name in tables.
        epsilon: Local epsilon; infinity for none.
        sampler: The sampler of the items of a client that has too many: "greedy" or
            "random".
        num_passes: Number of passes.
        cohort_size: Cohort size (N).
        coverage: The paper's coverage, in [0, 1]; None without one.
    """

    name: str
    epsilon: float
    sampler: str
    num_passes: int
    cohort_size: int
    coverage: float | None = None


SETTINGS = {
    "oov_table1": (
        PaperSetting("greedy, one pass", 10.0, "greedy", 1, 1_000_000, 0.771),
        PaperSetting("random, one pass", 10.0, "random", 1, 1_000_000, 0.831),
        PaperSetting("random, two passes", 10.0, "random", 2, 500_000, 0.921),
    ),
    "oov_figure1": (
        PaperSetting("epsilon 2", 2.0, "greedy", 1, 1_000_000),
        PaperSetting("epsilon 4", 4.0, "greedy", 1, 1_000_000),
        PaperSetting("epsilon 6", 6.0, "greedy", 1, 1_000_000),
        PaperSetting("epsilon 8", 8.0, "greedy", 1, 1_000_000),
        PaperSetting("epsilon 10", 10.0, "greedy", 1, 1_000_000, 0.771),
        PaperSetting("epsilon 12", 12.0, "greedy", 1, 1_000_000),
        PaperSetting("epsilon inf", math.inf, "greedy", 1, 1_000_000),
    ),
    "oov_production": (PaperSetting("greedy, two passes", 10.0, "greedy", 2, 500_000),),
}


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Options of a study; each field is a flag."""

    scale: float = option(
        0.05, "Part of the paper's clients: 1 is 15 million of them.", above=0, most=1
    )
    num_repeats: int = option(
        3,
        "Runs of each setting, for the intervals; each takes minutes.",
        least=1,
        most=1000,
    )
    mean_words_per_client: float = _of_population(
        "mean_words_per_client",
        132.0,
        "Mean number of words that a client types: of target words, or, with "
        "--common_law=frequencies, of all words, of which --target_share are target "
        "words.",
        least=2,
    )
    words_per_client_sigma: float = _of_population(
        "words_per_client_sigma",
        1.11,
        "Standard deviation of the logarithm of that number: how heavy its tail is.",
    )
    client_law: str = _of_population(
        "client_law",
        "pitman_yor",
        "Law of the words of a client, as of any synthetic population: with "
        "'pitman_yor' a client has habits, as real users do. With 'bloggers' clients "
        "are the bloggers of --data_dir, drawn with replacement.",
        choices=(*population_options.CLIENT_LAWS, BLOGGERS),
    )
    client_discount: float = _of_population(
        "client_discount",
        0.81,
        "With --client_law=pitman_yor: the discount of a client's process.",
    )
    client_concentration: float = _of_population(
        "client_concentration",
        22.0,
        "With --client_law=pitman_yor: its concentration.",
    )
    common_law: str = _of_population(
        "common_law",
        "pitman_yor",
        "Law of the target words: as in English, or, with 'pitman_yor', the "
        "expected masses of such a law by rank. Then all words that a client types "
        "are target words.",
    )
    common_discount: float = _of_population(
        "common_discount",
        0.095,
        "With --common_law=pitman_yor: its discount.",
    )
    common_concentration: float = _of_population(
        "common_concentration",
        15_030.0,
        "With --common_law=pitman_yor: its concentration.",
    )
    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship and word-lists. Target "
        "words are then those of the dictionary in the lowest --target_share of what "
        "bloggers typed, the paper's rule; without it, those of the English list.",
    )
    trending_share: float = _of_population(
        "trending_share",
        0.0,
        "Share of the target words typed that are words in fashion, a stress test: "
        "those are far more frequent than the paper's rule allows. The others come by "
        "the common law.",
        why="",
    )
    trending_words: int = _of_population(
        "trending_words",
        70,
        "Number of target words in fashion.",
        most=_LIST_WORDS,
    )
    trending_exponent: float = _of_population(
        "trending_exponent",
        0.3,
        "The k-th word in fashion is typed k**-exponent times as often as the first.",
    )
    target_share: float = option(
        0.05,
        "Share of the frequency mass of English that the target words make up.",
        above=0,
        below=1,
    )
    vocabulary_size: int | None = option(
        None,
        "The target words are among so many most frequent English words; by default "
        "among all of the word list.",
        least=1,
        most=_LIST_WORDS,
    )
    max_depth: int = _of_ldp_triehh("max_depth", 15, "Levels of a pass (D).", most=100)
    max_prefixes: int = _of_ldp_triehh(
        "max_prefixes",
        10_000,
        "Prefixes that a level keeps (eta_max); the next level's candidates are 101 "
        "times as many, and each takes 100 bytes.",
        most=1_000_000,
    )
    contribution_bound: int = _of_ldp_triehh(
        "contribution_bound",
        60,
        "Reports of a client (B); more than clients have items are padding.",
        most=100_000,
    )
    population_seed: int = _of_population(
        "seed", 0, "Seed of the population.", most=2**63 - 1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.client_law == BLOGGERS and not self.data_dir:
            raise options_lib.OptionError(
                self, "{client_law=}: needs {data_dir}, where the bloggers are"
            )
        if self.data_dir and BLOGGERS != self.client_law != "pitman_yor":
            raise options_lib.OptionError(
                self, "{data_dir=}: {client_law=} does not read it"
            )
        if self.data_dir and self.common_law != "pitman_yor":
            raise options_lib.OptionError(
                self,
                "{data_dir=}: needs {common_law=pitman_yor}; its target words have an "
                "order, but no frequencies that hold for others",
            )

    @property
    def num_clients(self) -> int:
        """Clients that the population needs, those that count included."""
        return math.ceil(_CLIENTS * self.scale)

    def parameters(
        self, setting: PaperSetting
    ) -> "ldp_triehh_parameters.LdpTrieHHParameters":
        """Returns the parameters of a setting at this scale."""
        from federated_hh.heavy_hitters import contributions
        from federated_hh.heavy_hitters.ldp_triehh import (
            parameters as ldp_triehh_parameters,
        )

        return ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=math.ceil(setting.cohort_size * self.scale),
            max_depth=self.max_depth,
            max_prefixes=self.max_prefixes,
            contribution_bound=self.contribution_bound,
            epsilon=setting.epsilon,
            num_passes=setting.num_passes,
            sampler=contributions.ItemSampler(setting.sampler),
        )
