"""Studies of how much of what clients type LDP TrieHH finds."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from absl import logging

from federated_hh.files import tables
from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import coverage
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.ldp_triehh import results as ldp_triehh_results
from federated_hh.options import checks
from federated_hh.populations.columns import client_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised, statement
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.randomness import noise_keys
from federated_hh.rounds import run as engine
from federated_hh.run_directory import directory as run_directory
from studies import study
from studies.sun_2024 import coverage_report

WORDS_FILE = "heavy_hitters.csv"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of a table, or a point of a plot.

    Attributes:
        name: Name in tables.
        population: The clients.
        parameters: The parameters of LDP TrieHH.
        paper_coverage: The paper's coverage, in [0, 1]; None without one.
        held_out: Other clients, for evaluation alone; None for none.
    """

    name: str
    population: client_words.ClientWords
    parameters: ldp_triehh_parameters.LdpTrieHHParameters
    paper_coverage: float | None = None
    held_out: client_words.ClientWords | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoverageStudy:
    """Settings of LDP TrieHH; a `study.Study`.

    Repeats of different settings with the same number have the same seed, and where
    they ask as many clients a level, the same cohorts.

    Attributes:
        title: The title of its tables and plots.
        settings: Settings in the order of the table.
        num_repeats: Runs of each setting, at least 1.
        data: The fingerprints of the populations, by name.
        alphabet: The alphabet of the words.
        seed: The seed of all runs' cohorts, at least 0.
        notes: Notes on the table.
        more_files: Given all tables and the directory, returns what is shown beside
            them, by name; what is of the page's name goes to its end. None for nothing.
    """

    title: str
    settings: tuple[Setting, ...]
    num_repeats: int
    data: Mapping[str, str]
    alphabet: alphabet_lib.Alphabet
    seed: int
    notes: tuple[str, ...]
    more_files: Callable[[study.Tables, pathlib.Path], dict[str, bytes]] | None = None

    def __post_init__(self):
        checks.integer(num_repeats=self.num_repeats, least=1)
        for setting in self.settings:
            check_sizes(
                setting.name,
                setting.parameters,
                self.alphabet,
                setting.population.num_clients,
            )

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a repeat of a setting, or what is left of it; see `study.Study`.

        Returns:
            runs: a row for each pass: the parameters, words_found, words_real, coverage
            (of all words found until then), estimated_coverage and standard_error (by
            all who took no part), the same of the words above the cut by standard
            errors (`ldp_triehh_results.Results`), held_out_coverage (of what the
            held-out clients typed, where a setting has any), and seconds (of all
            levels). levels: a row for each level: its metrics, and a digest of its
            cohort. `part` gets the words found.
        """
        results, levels = self._run(setting, repeat, part)
        part.simulator.write_table(WORDS_FILE, results.words.assign(repeat=repeat))
        passes = results.repeats.drop(columns="repeat")
        if any(row.held_out is not None for row in self.settings):
            passes["held_out_coverage"] = _held_out_coverage(
                setting.held_out, results.words, passes["pass_number"]
            )
        logging.info("Coverage %.2f%%.", 100 * passes["coverage"].iloc[-1])
        parameters = setting.parameters
        row = {
            "epsilon": parameters.epsilon,
            "sampler": parameters.sampler.value,
            "num_passes": parameters.num_passes,
            "cohort_size": parameters.cohort_size,
            "contribution_bound": parameters.contribution_bound,
            "max_prefixes": parameters.max_prefixes,
            "paper_coverage": setting.paper_coverage,
        }
        seconds = levels["seconds"].sum()
        return {
            "runs": [
                {**row, **found, "seconds": float(seconds)}
                for found in passes.to_dict("records")
            ],
            "levels": levels.to_dict("records"),
        }

    def _run(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> tuple[ldp_triehh_results.Results, pd.DataFrame]:
        """Runs LDP TrieHH; the one place that knows how."""
        algorithm = ldp_triehh.LdpTrieHH(
            setting.population, setting.parameters, self.alphabet
        )
        seed = noise_keys.derived(self.seed, "repeat", repeat) >> 65  # below 2^63
        outcome = engine.run(algorithm, part, seed=seed)
        levels = part.metrics().drop(columns="repeat")
        levels["cohort"] = [asked.cohort for asked in outcome.record.rounds.rounds]
        results = ldp_triehh_results.evaluate(
            algorithm,
            [outcome.states[0].found],
            part.metrics(),
            seed,
            counting_clients=None,
        )
        return results, levels

    def files(self, tables: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        found = coverage_report.files(self.title, tables, self.notes)
        more = self.more_files(tables, directory) if self.more_files else {}
        for name, contents in more.items():
            found[name] = found.get(name, b"") + contents
        return found


def check_sizes(
    name: str,
    parameters: ldp_triehh_parameters.LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    num_clients: int,
) -> None:
    """Checks that a setting can be run.

    Args:
        name: The name of the setting.
        parameters: The parameters of its runs.
        alphabet: The alphabet of its words.
        num_clients: Clients in its population.

    Raises:
        ValueError: See `LdpTrieHHParameters.check_sizes`; with the setting's name.
    """
    try:
        parameters.check_sizes(
            num_clients,
            alphabet,
            parameters.cohort_size,
            ldp_triehh_parameters.ReportSampling.AGGREGATE,
        )
    except ValueError as error:
        raise ValueError(f"setting {name!r}: {error}") from error


def _held_out_coverage(
    held_out: client_words.ClientWords | None,
    words: pd.DataFrame,
    passes: Iterable[int],
) -> list[float]:
    """Returns the share of other clients' words that is made of the words found.

    Args:
        held_out: The other clients, if any.
        words: A row a word found, with the pass that found it.
        passes: For each of these, the words found until then count.
    """
    if held_out is None:
        return [math.nan for _ in passes]
    totals = coverage.WordTotals.of(held_out)
    totals = totals.of_length(ldp_triehh_results.LEAST_CHARACTERS)
    return [
        totals.coverage(words["word"][words["pass_number"] <= number])
        for number in passes
    ]


def words_of(setting: str, directory: pathlib.Path) -> pd.DataFrame:
    """Returns the words that the first repeat of a setting found.

    Args:
        setting: Its name.
        directory: The directory of the study's run.
    """
    part = directory / study.part_name(setting, 0)
    return tables.read(part / "simulator" / WORDS_FILE).drop(columns="repeat")


def realised_statement(
    parameters: ldp_triehh_parameters.LdpTrieHHParameters,
    levels: pd.DataFrame,
    delta: float,
) -> statement.PrivacyStatement:
    """Returns the guarantee of all repeats of a setting together.

    Args:
        parameters: The parameters of the setting.
        levels: A row a level of each repeat, in order, with repeat, clients, candidates
            and cohort.
        delta: The delta of the central guarantees.
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
    record = plan_lib.Record(realised.RealisedRounds(tuple(rounds)))
    plan = ldp_triehh.plan_of(parameters, parameters.clients_needed)
    return plan.statement(record, delta)
