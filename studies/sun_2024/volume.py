"""Table 1 of Sun et al. 2024 over what clients type: predicted, and simulated.

The paper publishes neither how much its clients type nor how they repeat words; both
decide the gain of the random sampler. `mean_field` predicts coverage at the paper's
parameters, and clients that are generated from their seed confirm it.
"""

import dataclasses
import math
import os
import pathlib
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from federated_hh.options.fields import OptionError, option
from studies import study, study_options
from studies.sun_2024 import case_options, target_words

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.populations.columns import generated_words
    from federated_hh.run_directory import directory as run_directory

TITLE = "Table 1 of Sun et al. 2024 over what clients type"
_CLIENTS = 15_500_000
_TARGET_SHARE = 0.05
_SIGMA = 1.11  # of bloggers' numbers of words: results/oov_fit
_VOCABULARY_SIZE = 100_000
# How clients repeat their own words, by name: discount and concentration of a
# Pitman-Yor process. Bloggers' are those of results/oov_fit.
HABITS = {"independent": None, "some": (0.2, 3000.0), "bloggers'": (0.81, 22.0)}


@dataclasses.dataclass(frozen=True)
class Clients:
    """The clients of a setting.

    Attributes:
        power: Exponent of the frequencies of the target words in English; above 1 the
            law is steeper.
        words: Mean number of target words that a client types.
        habits: A name of `HABITS`.
    """

    power: float
    words: int
    habits: str = "independent"

    @property
    def name(self) -> str:
        """The name in tables."""
        habits = "" if self.habits == "independent" else f", {self.habits} habits"
        return f"frequencies^{self.power:g}, {self.words} words{habits}"


@dataclasses.dataclass(frozen=True)
class Setting:
    """Rows that are computed together.

    Attributes:
        topic: The table that they belong to.
        clients: Their clients.
        rows: Settings of Algorithm 2.
    """

    topic: str
    clients: Clients
    rows: tuple[case_options.PaperSetting, ...]

    @property
    def name(self) -> str:
        """The name in tables, and of its part of the run directory."""
        only = f", {self.rows[0].name}" if len(self.rows) == 1 else ""
        return f"{self.topic}, {self.clients.name}{only}"


_TABLE_1 = case_options.SETTINGS["oov_table1"]
_PRODUCTION = case_options.SETTINGS["oov_production"]
POWERS = (1.0, 1.4, 1.5, 1.6, 1.7, 1.8)
VOLUMES = (130, 500, 1500, 4000)
# The grid's clients whose coverage is nearest to the paper's three rows: `nearest`.
CHOSEN = Clients(1.7, 4000)


_EPSILONS = tuple(
    case_options.PaperSetting(
        f"{sampler}, epsilon {epsilon:g}", epsilon, sampler, 1, 1_000_000
    )
    for epsilon in (8.0, 10.0, 12.0, math.inf)
    for sampler in ("greedy", "random")
)
SETTINGS = (
    *(
        Setting("grid", Clients(power, words), _TABLE_1)
        for power in POWERS
        for words in VOLUMES
    ),
    *(
        Setting("habits", Clients(CHOSEN.power, words, habits), _TABLE_1)
        for habits in list(HABITS)[1:]
        for words in VOLUMES
    ),
    Setting("epsilon", CHOSEN, _EPSILONS),
    Setting("production", CHOSEN, _PRODUCTION),
    *(Setting("simulated", CHOSEN, (row,)) for row in _TABLE_1),
)
TOPICS = tuple(dict.fromkeys(setting.topic for setting in SETTINGS))


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Options of the study; each field is a flag."""

    scale: float = option(
        1.0, "Part of the paper's clients: 1 is 15 million of them.", above=0, most=1
    )
    vocabulary_size: int = option(
        _VOCABULARY_SIZE,
        "The target words are the rarest 5% of so many most frequent English words.",
        least=1000,
        most=318_465,
    )
    max_depth: int = option(15, "Levels of a pass (D).", least=1, most=100)
    max_prefixes: int = option(
        10_000, "Prefixes that a level keeps (eta_max).", least=1, most=1_000_000
    )
    topics: tuple[str, ...] = option(
        TOPICS, f"Tables to compute, with commas between: {', '.join(TOPICS)}."
    )

    def __post_init__(self):
        super().__post_init__()
        if unknown := set(self.topics) - set(TOPICS):
            raise OptionError(
                self,
                "{topics=}: {first!r} is none of {all}",
                first=min(unknown),
                all=", ".join(TOPICS),
            )


@dataclasses.dataclass(frozen=True)
class VolumeStudy:
    """The study; a `study.Study`.

    Attributes:
        options: Its options.
        seed: Seed of cohorts, items and noise.
        cache: Directory of prepared data.
        settings: Its settings.
    """

    options: Options
    seed: int
    cache: str | os.PathLike[str]
    settings: tuple[Setting, ...]
    title: str = TITLE
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: "run_directory.RunDirectory"
    ) -> dict[str, list[dict[str, Any]]]:
        """Computes the rows of a setting, or runs its clients; see `study.Study`.

        Returns:
            coverage: a row for each row of the setting: topic, power, words, habits,
            row, epsilon, paper (the paper's coverage), coverage. depths: for each of
            these, the coverage of the words of so many characters at most.
        """
        del repeat
        found, depths = [], []
        for row in setting.rows:
            names = {
                "topic": setting.topic,
                **dataclasses.asdict(setting.clients),
                "row": row.name,
                "epsilon": row.epsilon,
            }
            by_depth = self._coverage(setting, row, part)
            found.append(names | {"paper": row.coverage, "coverage": by_depth[-1]})
            depths += [
                names | {"depth": depth, "coverage": coverage}
                for depth, coverage in enumerate(by_depth, 1)
            ]
        return {"coverage": found, "depths": depths}

    def _coverage(self, setting, row, part) -> list[float]:
        """Returns the coverage of the words of up to 1, 2, ... characters."""
        from federated_hh.heavy_hitters import alphabet as alphabet_lib
        from federated_hh.heavy_hitters import contributions
        from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
        from federated_hh.heavy_hitters.ldp_triehh import parameters as parameters_lib
        from federated_hh.rounds import run as engine
        from studies.sun_2024 import mean_field

        options, clients = self.options, setting.clients
        population = self._population(clients)
        parameters = parameters_lib.LdpTrieHHParameters(
            cohort_size=math.ceil(row.cohort_size * options.scale),
            max_depth=options.max_depth,
            max_prefixes=options.max_prefixes,
            contribution_bound=60,
            epsilon=row.epsilon,
            num_passes=row.num_passes,
            sampler=contributions.ItemSampler(row.sampler),
        )
        alphabet = alphabet_lib.Alphabet(string.printable)
        if setting.topic == "simulated":
            made = ldp_triehh.LdpTrieHH(population, parameters, alphabet)
            state = engine.run(made, part, seed=self.seed).states[0]
        else:
            habits = HABITS[clients.habits]
            predicted = mean_field.MeanField(
                population,
                parameters,
                alphabet,
                mean_field.Habits(*habits) if habits else None,
            )
            state = mean_field.run(predicted, self.seed)
        return mean_field.coverage(population, state.found, options.max_depth)

    def _population(self, clients: Clients) -> "generated_words.GeneratedWords":
        """Returns clients that are drawn from their seed, with a setting's law."""
        from federated_hh.populations import population
        from federated_hh.populations.columns import generated_words
        from federated_hh.populations.options import population_options

        made = population.prepare_words(
            population_options.PopulationOptions(
                source=population_options.GENERATED,
                tokenizer="whitespace",
                empty_clients="keep",
                common_words=target_words.target_words_file(
                    self.cache, _TARGET_SHARE, self.options.vocabulary_size
                ),
                frequency_power=clients.power,
                num_clients=math.ceil(_CLIENTS * self.options.scale),
                mean_words_per_client=clients.words,
                words_per_client_sigma=_SIGMA,
            ),
            self.cache,
        )
        assert isinstance(made, generated_words.GeneratedWords)
        return made

    def files(
        self, tables: study.Tables, directory: pathlib.Path
    ) -> Mapping[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        from studies.sun_2024 import volume_report

        return volume_report.files(TITLE, self.options, tables)


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> VolumeStudy:
    """Returns the study; see `studies`."""
    del name
    settings = tuple(s for s in SETTINGS if s.topic in options.topics)
    return VolumeStudy(options, seed, cache, settings)


def nearest(table: pd.DataFrame) -> Clients:
    """Returns the grid's clients whose worst row is nearest to the paper's.

    Args:
        table: The rows of coverage, from `VolumeStudy.run_part`.
    """
    rows = table[table["topic"] == "grid"]
    errors = (rows["coverage"] - rows["paper"]).abs()
    worst = errors.groupby([rows["power"], rows["words"]]).max()
    power, words = worst.idxmin()
    return Clients(float(power), int(words))
