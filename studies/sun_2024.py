"""The case study of Sun et al. 2024, Section 4, on populations of our own."""

import dataclasses
import math
import os
import string
from typing import TYPE_CHECKING, ClassVar

from options import fields as options_lib
from options.fields import option
from simulation import population_options
from studies import target_words

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh import ldp_triehh_parameters
    from simulation import client_words
    from studies import coverage_study

# The clients of the paper's settings are 15 million; some more take part in the
# counting task, and a few type no target word.
_CLIENTS = 15_500_000
# Words of the English list.
_LIST_WORDS = 318_465
INTERVALS = (
    "Intervals are over repeats, each with cohorts, local samples and noise of its "
    "own, on one population. Settings have noise of their own, and the cohorts in "
    "common with settings of as many clients a level."
)
# What keeps the numbers of a synthetic population from being Gboard's.
_HABITS = (
    "The population: each client's target words are a Pitman-Yor process with discount "
    "{0.client_discount:g} and concentration {0.client_concentration:g} over a common "
    "law, {1}; {0.mean_words_per_client:g} words a client on average. "
    "`simulation.fit_population` fits such a law to real text."
)
_DIFFERENCES = (
    "Where this differs from the paper's population: all clients draw words "
    "independently from one distribution, which mixes some words in fashion with the "
    "tail of a list of 318,465 English words. How often Gboard's users repeat a word, "
    "and how many share it, is not published. Fashion is what separates the samplers "
    "here: the greedy one spends a device's reports on it, and the tail goes short."
)


@dataclasses.dataclass(frozen=True)
class PaperSetting:
    """A row of a table, or a point of a plot, as the paper has it.

    Attributes:
        name: In tables.
        epsilon: Local epsilon; infinity for none.
        sampler: Of the items of a client that has too many: "greedy" or "random".
        num_passes: Passes.
        cohort_size: N in the paper.
        coverage: What the paper reports, in [0, 1]; None where it does not.
    """

    name: str
    epsilon: float
    sampler: str
    num_passes: int
    cohort_size: int
    coverage: float | None = None


TITLES = {
    "oov_table1": "Table 1 of Sun et al. 2024: sampler and passes",
    "oov_figure1": "Figure 1 of Sun et al. 2024: coverage and local epsilon",
    "oov_production": "The production setting of Sun et al. 2024, Section 4.1",
}
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
class Options:
    """How a study is run; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

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
        3600.0,
        "Mean number of words that a client types in the paper's T = 60 days; with "
        "--target_share=0.05, one in twenty is a target word.",
        least=2,
        most=population_options.MAX_MEAN_WORDS,
    )
    words_per_client_sigma: float = option(
        0.7,
        "Standard deviation of the logarithm of that number: how heavy its tail is.",
        least=0,
        most=population_options.MAX_SIGMA,
    )
    client_law: str = option(
        "independent",
        "Law of the words of a client, as of any synthetic population. With "
        "'pitman_yor' a client has habits, as real users do.",
        choices=population_options.CLIENT_LAWS,
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
        "frequencies",
        "How likely the target words are: as in English, or, with 'pitman_yor', the "
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
    target_list: str | None = option(
        None,
        "File of the target words, one a line, the most frequent first, instead of the "
        "rare end of English: such as a dictionary's words that real text has seldom "
        "(`studies.target_words.seldom_typed_file`). Needs --common_law=pitman_yor.",
    )
    trending_share: float = option(
        0.75,
        "Share of the target words typed that are words in fashion; the others are "
        "typed at the frequencies of English.",
        least=0,
        below=1,
    )
    trending_words: int = option(
        70, "How many target words are in fashion.", least=1, most=_LIST_WORDS
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
        options_lib.check(self)
        if self.target_list and self.common_law != "pitman_yor":
            raise options_lib.OptionError(
                self,
                "{target_list=}: needs {common_law=pitman_yor}; a list has no "
                "frequencies",
            )

    @property
    def num_clients(self) -> int:
        """Clients that the population needs, those that count included."""
        return math.ceil(_CLIENTS * self.scale)

    def parameters(
        self, setting: PaperSetting
    ) -> "ldp_triehh_parameters.LdpTrieHHParameters":
        """Returns the parameters of a setting at this scale."""
        from federated_hh import contributions, ldp_triehh_parameters

        return ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=math.ceil(setting.cohort_size * self.scale),
            max_depth=self.max_depth,
            max_prefixes=self.max_prefixes,
            contribution_bound=self.contribution_bound,
            epsilon=setting.epsilon,
            num_passes=setting.num_passes,
            sampler=contributions.ItemSampler(setting.sampler),
        )


def prepare(
    name: str,
    options: Options,
    *,
    seed: int,
    cache: str | os.PathLike[str],
) -> "coverage_study.CoverageStudy":
    """Returns a study of the paper.

    Args:
        name: One of `SETTINGS`.
        options: How it is run.
        seed: Of all runs' cohorts, at least 0.
        cache: Directory where populations are kept.

    Raises:
        ValueError: If a setting cannot be run; before a population is prepared.
    """
    from federated_hh import alphabet as alphabet_lib
    from studies import coverage_study, sun_2024_production

    alphabet = alphabet_lib.Alphabet(string.printable)
    parameters = {row.name: options.parameters(row) for row in SETTINGS[name]}
    for row, values in parameters.items():
        coverage_study.check_sizes(row, values, alphabet, options.num_clients)
    population = _population(options, cache)

    def guarantees(tables, directory) -> dict[str, bytes]:
        del directory
        (only,) = parameters.values()
        return sun_2024_production.guarantees(only, alphabet, tables["levels"])

    return coverage_study.CoverageStudy(
        title=TITLES[name],
        settings=tuple(
            coverage_study.Setting(
                row.name, population, parameters[row.name], row.coverage
            )
            for row in SETTINGS[name]
        ),
        num_repeats=options.num_repeats,
        data={"population": population.fingerprint},
        alphabet=alphabet,
        seed=seed,
        notes=(
            f"Population: {population.num_clients:,} synthetic clients with "
            f"{population.num_words:,} distinct target words, "
            f"{population.num_entries / population.num_clients:.1f} of them a client "
            f"on average; scale {options.scale:g}.",
            _population_note(options),
            INTERVALS,
        ),
        more_files=guarantees if name == "oov_production" else None,
    )


def _population_note(options: Options) -> str:
    """Returns what keeps the numbers of the population from being Gboard's."""
    if options.client_law == "independent":
        return _DIFFERENCES
    law = "the frequencies of English"
    if options.common_law == "pitman_yor":
        law = (
            "the expected masses of a Pitman-Yor law with discount "
            f"{options.common_discount:g} and concentration "
            f"{options.common_concentration:g}, by rank"
        )
    if options.trending_share:
        law += f", {options.trending_share:.0%} of it words in fashion"
    return _HABITS.format(options, law)


def _population(
    options: Options, cache: str | os.PathLike[str]
) -> "client_words.ClientWords":
    """Returns the synthetic population that types the target words."""
    from simulation import population

    known = None
    if not options.target_list:
        known = target_words.known_words_file(
            cache, options.target_share, options.vocabulary_size
        )
    return population.prepare(
        population_options.PopulationOptions(
            tokenizer="whitespace",
            known_words=known,
            common_words=options.target_list,
            client_law=options.client_law,
            client_discount=options.client_discount,
            client_concentration=options.client_concentration,
            common_law=options.common_law,
            common_discount=options.common_discount,
            common_concentration=options.common_concentration,
            num_clients=options.num_clients,
            mean_words_per_client=options.mean_words_per_client,
            words_per_client_sigma=options.words_per_client_sigma,
            trending_share=options.trending_share,
            trending_words=options.trending_words,
            trending_exponent=options.trending_exponent,
            seed=options.population_seed,
        ),
        cache,
    )
