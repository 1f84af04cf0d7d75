"""Options and settings of the case study of Sun et al. 2024, Section 4."""

import dataclasses
import math
from typing import TYPE_CHECKING

from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.populations.options import population_options
from studies import study_options

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

# The clients of the paper's settings are 15 million; some more take part in the
# counting task, and a few type no target word.
_CLIENTS = 15_500_000
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
    mean_words_per_client: float = option(
        132.0,
        "Mean number of words that a client types: of target words, or, with "
        "--common_law=frequencies, of all words, of which --target_share are target "
        "words.",
        least=2,
        most=population_options.MAX_MEAN_WORDS,
    )
    words_per_client_sigma: float = option(
        1.11,
        "Standard deviation of the logarithm of that number: how heavy its tail is.",
        least=0,
        most=population_options.MAX_SIGMA,
    )
    client_law: str = option(
        "pitman_yor",
        "Law of the words of a client, as of any synthetic population: with "
        "'pitman_yor' a client has habits, as real users do. With 'bloggers' clients "
        "are the bloggers of --data_dir, drawn with replacement.",
        choices=(*population_options.CLIENT_LAWS, BLOGGERS),
    )
    client_discount: float = option(
        0.81,
        "With --client_law=pitman_yor: the discount of a client's process.",
        least=0,
        below=1,
    )
    client_concentration: float = option(
        22.0,
        "With --client_law=pitman_yor: its concentration.",
        above=-1,
        most=population_options.MAX_CONCENTRATION,
    )
    common_law: str = option(
        "pitman_yor",
        "Law of the target words: as in English, or, with 'pitman_yor', the "
        "expected masses of such a law by rank. Then all words that a client types "
        "are target words.",
        choices=population_options.COMMON_LAWS,
    )
    common_discount: float = option(
        0.095,
        "With --common_law=pitman_yor: its discount.",
        least=0,
        below=1,
    )
    common_concentration: float = option(
        15_030.0,
        "With --common_law=pitman_yor: its concentration.",
        above=-1,
        most=population_options.MAX_CONCENTRATION,
    )
    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship and word-lists. Target "
        "words are then those of the dictionary in the lowest --target_share of what "
        "bloggers typed, the paper's rule; without it, those of the English list.",
    )
    trending_share: float = option(
        0.0,
        "Share of the target words typed that are words in fashion, a stress test: "
        "those are far more frequent than the paper's rule allows. The others come by "
        "the common law.",
        least=0,
        below=1,
    )
    trending_words: int = option(
        70, "Number of target words in fashion.", least=1, most=_LIST_WORDS
    )
    trending_exponent: float = option(
        0.3,
        "The k-th word in fashion is typed k**-exponent times as often as the first.",
        least=0,
        most=population_options.MAX_TRENDING_EXPONENT,
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
    max_depth: int = option(15, "Levels of a pass (D).", least=1, most=100)
    max_prefixes: int = option(
        10_000,
        "Prefixes that a level keeps (eta_max); the next level's candidates are 101 "
        "times as many, and each takes 100 bytes.",
        least=1,
        most=1_000_000,
    )
    contribution_bound: int = option(
        60,
        "Reports of a client (B); more than clients have items are padding.",
        least=1,
        most=100_000,
    )
    population_seed: int = option(0, "Seed of the population.", least=0, most=2**63 - 1)

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
