"""The case study of Sun et al. 2024, Section 4, on populations of our own.

A study is a list of settings, each run a number of times on its population. Repeats of
different settings with the same number have the same seed, and where they ask as many
clients a level, the same cohorts.
"""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from absl import logging

from federated_hh import alphabet as alphabet_lib
from federated_hh import (
    contributions,
    ldp_triehh,
    ldp_triehh_parameters,
    ldp_triehh_results,
)
from privacy import local_reports_plan, realised
from privacy import plan as plan_lib
from randomness import seeds
from rounds import run as engine
from simulation import client_words, run_directory

# The clients of the paper's settings are 15 million; some more take part in the
# counting task, and a few type no target word.
_CLIENTS = 15_500_000


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of a table, or a point of a plot.

    Attributes:
        name: In tables.
        epsilon: Local epsilon; infinity for none.
        sampler: Of the items of a client that has too many.
        num_passes: Passes.
        clients_per_level: N in the paper.
        paper_coverage: What the paper reports, in [0, 1]; None where it does not.
    """

    name: str
    epsilon: float
    sampler: contributions.ItemSampler
    num_passes: int
    clients_per_level: int
    paper_coverage: float | None = None


@dataclasses.dataclass(frozen=True)
class Study:
    """What `scripts/reproduce.py --study` runs.

    Attributes:
        title: Of its tables and plots.
        settings: In the order of the table.
    """

    title: str
    settings: tuple[Setting, ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """How a study is run.

    Attributes:
        scale: Part of the paper's clients, in (0, 1].
        num_repeats: Runs of each setting, at least 1.
        seed: Of all runs' cohorts, at least 0.
        max_depth: D.
        max_prefixes: eta_max.
        contribution_bound: B.
        characters: The alphabet, without the end symbol.
    """

    scale: float
    num_repeats: int
    seed: int
    max_depth: int
    max_prefixes: int
    contribution_bound: int
    characters: str

    def __post_init__(self):
        if not 0 < self.scale <= 1:
            raise ValueError(f"scale is {self.scale}; it has to be in (0, 1]")
        if self.num_repeats < 1:
            raise ValueError(f"num_repeats is {self.num_repeats}; at least 1 needed")

    @property
    def num_clients(self) -> int:
        """Clients that the population needs, those that count included."""
        return math.ceil(_CLIENTS * self.scale)

    def parameters(self, setting: Setting) -> ldp_triehh_parameters.LdpTrieHHParameters:
        """Returns the parameters of a setting at this scale."""
        return ldp_triehh_parameters.LdpTrieHHParameters(
            clients_per_level=math.ceil(setting.clients_per_level * self.scale),
            max_depth=self.max_depth,
            max_prefixes=self.max_prefixes,
            contribution_bound=self.contribution_bound,
            epsilon=setting.epsilon,
            num_passes=setting.num_passes,
            sampler=setting.sampler,
        )

    def check(self, study: Study, num_clients: int) -> None:
        """Checks that all settings of a study can be run.

        Args:
            study: The study.
            num_clients: Clients in the population.

        Raises:
            ValueError: If a parameter is out of its range, or see
                `LdpTrieHHParameters.check_sizes`.
        """
        alphabet = alphabet_lib.Alphabet(self.characters)
        for setting in study.settings:
            parameters = self.parameters(setting)
            try:
                parameters.check_sizes(
                    num_clients,
                    alphabet,
                    parameters.clients_per_level,
                    ldp_triehh_parameters.ReportSampling.AGGREGATE,
                )
            except ValueError as error:
                raise ValueError(
                    f"setting {setting.name!r} at scale {self.scale:g}: {error}"
                ) from error


_GREEDY = contributions.ItemSampler.GREEDY
_RANDOM = contributions.ItemSampler.RANDOM

STUDIES = {
    "oov_table1": Study(
        "Table 1 of Sun et al. 2024: sampler and passes",
        (
            Setting("greedy, one pass", 10.0, _GREEDY, 1, 1_000_000, 0.771),
            Setting("random, one pass", 10.0, _RANDOM, 1, 1_000_000, 0.831),
            Setting("random, two passes", 10.0, _RANDOM, 2, 500_000, 0.921),
        ),
    ),
    "oov_figure1": Study(
        "Figure 1 of Sun et al. 2024: coverage and local epsilon",
        tuple(
            Setting(
                f"epsilon {epsilon:g}",
                epsilon,
                _GREEDY,
                1,
                1_000_000,
                0.771 if epsilon == 10 else None,
            )
            for epsilon in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, math.inf)
        ),
    ),
    "oov_production": Study(
        "The production setting of Sun et al. 2024, Section 4.1",
        (Setting("greedy, two passes", 10.0, _GREEDY, 2, 500_000),),
    ),
}


@dataclasses.dataclass(frozen=True)
class StudyResults:
    """What is known after some runs of a study.

    Attributes:
        runs: A row for each setting and repeat, and each pass of it: setting, repeat,
            the parameters, words_found, words_real, coverage (of all words found until
            then), estimated_coverage, standard_error, and seconds (of all levels).
        levels: A row for each setting, repeat and level: setting, and the metrics that
            `rounds.run` keeps.
    """

    runs: pd.DataFrame
    levels: pd.DataFrame


@dataclasses.dataclass
class StudyRunner:
    """Runs the settings of a study, and goes on where it was interrupted.

    Attributes:
        study: What to run.
        options: How.
        population: On whom.
        directory: Takes a checkpoint after each run of a setting. The run has a part
            of it, with a checkpoint after each level, and who took part.
    """

    study: Study
    options: Options
    population: client_words.ClientWords
    directory: run_directory.RunDirectory

    def run(self) -> Iterator[StudyResults]:
        """Runs what is left to run.

        Yields:
            After each repeat of all settings, the results so far.

        Raises:
            ValueError: See `Options.check`; before anything is run.
        """
        self.options.check(self.study, self.population.num_clients)
        saved = self.directory.load_checkpoint() or {"runs": [], "levels": []}
        done = {(row["setting"], row["repeat"]) for row in saved["runs"]}
        for repeat in range(self.options.num_repeats):
            for setting in self.study.settings:
                if (setting.name, repeat) not in done:
                    runs, levels = self._run_setting(setting, repeat)
                    saved["runs"] += runs
                    saved["levels"] += levels
                    self.directory.save_checkpoint(saved)
            yield StudyResults(
                pd.DataFrame(saved["runs"]), pd.DataFrame(saved["levels"])
            )

    def _run_setting(
        self, setting: Setting, repeat: int
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        parameters = self.options.parameters(setting)
        results, levels = run_part(
            self.population,
            parameters,
            alphabet_lib.Alphabet(self.options.characters),
            self.options.seed,
            self.directory,
            setting.name,
            repeat,
        )
        coverage = results.coverage["coverage"].iloc[-1]
        logging.info(
            "%s, repeat %d: coverage %.2f%%.", setting.name, repeat + 1, 100 * coverage
        )
        if repeat == 0:
            self.directory.simulator.write_table(
                f"words_{_file_name(setting.name)}.csv", results.words
            )
        runs = [
            {
                "setting": setting.name,
                "repeat": repeat,
                "epsilon": setting.epsilon,
                "sampler": setting.sampler.value,
                "num_passes": setting.num_passes,
                "clients_per_level": parameters.clients_per_level,
                "paper_coverage": setting.paper_coverage,
                **row,
                "seconds": seconds_of(levels),
            }
            for row in results.repeats.drop(columns="repeat").to_dict("records")
        ]
        return runs, levels.to_dict("records")


def run_part(
    population: client_words.ClientWords,
    parameters: ldp_triehh_parameters.LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    seed: int,
    directory: run_directory.RunDirectory,
    name: str,
    repeat: int,
) -> tuple[ldp_triehh_results.Results, pd.DataFrame]:
    """Runs LDP TrieHH, or what is left of it, in a part of a study's directory.

    Args:
        population: The clients.
        parameters: Of the setting.
        alphabet: Of its words.
        seed: Of the study.
        directory: Of the study; has the noise key.
        name: Of the setting.
        repeat: Its repeat, from 0.

    Returns:
        What was found, with the coverage counted by all who took no part; and a row a
        level: setting, repeat, the metrics, and a digest of the cohort.
    """
    algorithm = ldp_triehh.LdpTrieHH(population, parameters, alphabet)
    seed = _seed_of_repeat(seed, repeat)
    logging.info("%s, repeat %d:", name, repeat + 1)
    with directory.part(f"{_file_name(name)}_repeat_{repeat + 1}") as part:
        outcome = engine.run(algorithm, part, seed=seed)
        levels = part.metrics().assign(repeat=repeat)
    levels["cohort"] = [asked.cohort for asked in outcome.record.rounds.rounds]
    levels.insert(0, "setting", name)
    results = ldp_triehh_results.evaluate(
        algorithm, [outcome.states[0].found], seed, counting_clients=None
    )
    return results, levels


def _seed_of_repeat(seed: int, repeat: int) -> int:
    """Returns the seed of one repeat: other cohorts in each."""
    words = seeds.derive(seed, "repeat", repeat).generate_state(1, np.uint64)
    return int(words[0])


def record_of(levels: pd.DataFrame) -> plan_lib.Record:
    """Returns the levels of a setting as a privacy statement takes them.

    Args:
        levels: A row a level of each repeat, in order, with repeat, clients,
            candidates, and cohort.
    """
    numbers = levels.groupby("repeat").cumcount() + 1
    rounds = (
        realised.Round(
            int(row.repeat),
            int(number),
            int(row.clients),
            row.cohort,
            facts={local_reports_plan.CANDIDATES: int(row.candidates)},
        )
        for number, row in zip(numbers, levels.itertuples(), strict=True)
    )
    return plan_lib.Record(realised.RealisedRounds(tuple(rounds)))


def seconds_of(levels: pd.DataFrame) -> float:
    """Returns how long the levels took."""
    return float(levels["seconds"].sum())


def _file_name(setting: str) -> str:
    return re.sub(r"\W+", "_", setting)
