"""The case study of Sun et al. 2024, Section 4, on populations of our own.

A study is a list of settings, each run a number of times on its population. Repeats of
different settings with the same number have the same seed, and where they ask as many
clients a level, the same cohorts.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from absl import logging

from federated_hh import alphabet as alphabet_lib
from federated_hh import (
    contributions,
    ldp_triehh,
    ldp_triehh_experiment,
    ldp_triehh_parameters,
    ldp_triehh_results,
    ldp_triehh_state,
)
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
        seed: Of all runs, at least 0.
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


@dataclasses.dataclass
class StudyRunner:
    """Runs the settings of a study, and goes on where it was interrupted.

    Attributes:
        study: What to run.
        options: How.
        population: On whom.
        directory: Takes a checkpoint after each run of a setting.
    """

    study: Study
    options: Options
    population: client_words.ClientWords
    directory: run_directory.RunDirectory

    def run(self) -> Iterator[pd.DataFrame]:
        """Runs what is left to run; needs a TFF execution context.

        Yields:
            After each repeat of all settings, the runs so far: a row for each setting
            and repeat, and each pass of it: setting, repeat, the parameters,
            words_found, words_real, coverage (of all words found until then),
            estimated_coverage, standard_error, seconds.
        """
        rows: list[dict[str, Any]] = self.directory.load_checkpoint() or []
        done = {(row["setting"], row["repeat"]) for row in rows}
        for repeat in range(self.options.num_repeats):
            for setting in self.study.settings:
                if (setting.name, repeat) not in done:
                    rows += self._run_setting(setting, repeat)
                    self.directory.save_checkpoint(rows)
            yield pd.DataFrame(rows)

    def _run_setting(self, setting: Setting, repeat: int) -> list[dict[str, Any]]:
        parameters = self.options.parameters(setting)
        start = time.perf_counter()
        process = ldp_triehh.build_ldp_triehh_process(
            self.population,
            parameters,
            alphabet_lib.Alphabet(self.options.characters),
            seed=ldp_triehh_experiment.seed_of_repeat(self.options.seed, repeat),
        )
        built = time.perf_counter()
        state = run_levels(process, f"{setting.name}, repeat {repeat + 1}")
        seconds = time.perf_counter() - built
        results = ldp_triehh_results.evaluate(
            self.population,
            parameters,
            [state.found],
            [process.cohorts],
            counting_clients=None,
        )
        logging.info(
            "%s, repeat %d: coverage %.4f; levels took %.0f s, preparing %.0f s, "
            "counting %.0f s.",
            setting.name,
            repeat + 1,
            results.coverage["coverage"].iloc[-1],
            seconds,
            built - start,
            time.perf_counter() - built - seconds,
        )
        if repeat == 0:
            name = f"words_{setting.name.replace(', ', '_').replace(' ', '_')}.csv"
            self.directory.write_table(name, results.words)
        return [
            {
                "setting": setting.name,
                "repeat": repeat,
                "epsilon": str(setting.epsilon),
                "sampler": setting.sampler.value,
                "num_passes": setting.num_passes,
                "clients_per_level": parameters.clients_per_level,
                "paper_coverage": setting.paper_coverage,
                **row,
                "seconds": seconds,
            }
            for row in results.repeats.drop(columns="repeat").to_dict("records")
        ]


def run_levels(
    process: ldp_triehh.LdpTrieHHProcess, name: str
) -> ldp_triehh_state.LdpTrieHHState:
    """Runs LDP TrieHH from its first level to its last; returns the last state."""
    state = process.initialize()
    while not state.finished:
        output = process.next(state, process.cohorts.cohort(state.levels_done))
        state = output.state
        metrics: Mapping[str, int | float] = output.metrics
        logging.info(
            "%s: pass %d, level %d: %s words; %s",
            name,
            metrics["pass_number"],
            metrics["level"],
            f"{metrics['words_found']:,}",
            ", ".join(
                f"{key.removeprefix('seconds_')} {value:.2f} s"
                for key, value in metrics.items()
                if key.startswith("seconds")
            ),
        )
    return state
