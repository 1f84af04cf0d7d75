"""One comparison of algorithms that find words: clients in, words out, privacy stated.

An algorithm enters with a class derived from `federated_hh.rounds.algorithm.Algorithm`
that has `for_task(task)`, a class method which makes it for the clients and the central
privacy of a `Task`, and whose `results` have a table `heavy_hitters` with a column
`word`. docs/results/zhu_2020.md has an example.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import logging

from federated_hh.files import custom_parts
from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import evaluation, selection
from federated_hh.populations.columns import client_words
from federated_hh.privacy import guarantee as guarantee_lib
from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import noise_keys
from federated_hh.rounds import algorithm as algorithm_lib
from federated_hh.rounds import run as engine
from federated_hh.run_directory import directory as run_directory
from studies import study

# Words whose discovery rates are counted.
_MOST_RANKS = 2_000
# What accounting by another way may differ in.
_SLACK = 1e-6


@dataclasses.dataclass(frozen=True)
class Task:
    """The task of an algorithm.

    Attributes:
        clients: The population.
        alphabet: The alphabet of its words.
        epsilon: The epsilon of the central guarantee of one run, for the exchange or
            removal of a client's word; above 0.
        delta: Delta of that guarantee, in (0, 1).
        word_selection: Whether a client has one word, its most frequent one, or all.
    """

    clients: client_words.ClientWords
    alphabet: alphabet_lib.Alphabet
    epsilon: float
    delta: float
    word_selection: selection.WordSelection = selection.WordSelection.MOST_FREQUENT


Words = Mapping[str, Sequence[str]]


def words_of_results(algorithm: algorithm_lib.Algorithm[Any, Any], state: Any) -> Words:
    """Returns the words found, as an algorithm's results have them."""
    return {"": list(algorithm.results(state)["heavy_hitters"]["word"])}


@dataclasses.dataclass(frozen=True)
class Contestant:
    """An algorithm of the comparison.

    Attributes:
        name: Name in tables and plots.
        make: Makes it for a task.
        words: Words found, from its last state, by the names of variants
            that differ in what the server makes of one run. The empty name is of the
            only one.
        worst_case: The least discovery rate of words, from its algorithm and how many
            clients hold them, where a theorem has it.
    """

    name: str
    make: Callable[[Task], algorithm_lib.Algorithm[Any, Any]]
    words: Callable[[Any, Any], Words] = words_of_results
    worst_case: Callable[[Any, np.ndarray], np.ndarray] | None = None


def contestant(name: str) -> Contestant:
    """Returns a custom algorithm.

    Args:
        name: Its class, as `module:Class`.

    Raises:
        ValueError: If there is none of that name, or it has no `for_task`.
    """
    kind = custom_parts.load("algorithm", name, "an algorithm", algorithm_lib.Algorithm)
    if not hasattr(kind, "for_task"):
        raise ValueError(f"algorithm is {name!r}, which lacks for_task of its class")
    return Contestant(kind.__name__, kind.for_task)


@dataclasses.dataclass(frozen=True)
class Setting:
    """An algorithm at a level of privacy.

    Attributes:
        contestant: The algorithm.
        epsilon: Central, of one run.
        num_runs: Number of runs, at least 1.
    """

    contestant: Contestant
    epsilon: float
    num_runs: int

    @property
    def name(self) -> str:
        """In tables, and of its part of the run directory."""
        return f"{self.contestant.name}, epsilon {self.epsilon:g}"


def stated_epsilon(
    plan: plan_lib.Plan[Any, Any, Any], delta: float
) -> tuple[float, str]:
    """Returns a client's smallest proved epsilon of one run, and what gave it.

    Args:
        plan: The plan of the algorithm.
        delta: The most that a guarantee may have.

    Raises:
        ValueError: If nothing is guaranteed to all that a client has.
    """
    proved = [
        guarantee
        for guarantee in _of_a_client(plan, delta)
        if guarantee.is_upper_bound and guarantee.delta <= delta * (1 + _SLACK)
    ]
    if not proved:
        raise ValueError(f"the plan guarantees a client nothing at delta = {delta:g}")
    best = min(proved, key=lambda guarantee: guarantee.epsilon)
    return best.epsilon, best.bound


def _of_a_client(
    plan: plan_lib.Plan[Any, Any, Any], delta: float
) -> list[guarantee_lib.Guarantee]:
    """Returns the guarantees of a client, and not of one of its items alone."""
    one_item = getattr(plan.contribution, "bound", 1) == 1
    return [
        guarantee
        for guarantee in plan.statement(None, delta).guarantees
        if guarantee.unit is guarantee_lib.Unit.CLIENT or one_item
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Algorithms at levels of privacy on one population; a `study.Study`.

    Attributes:
        title: The title of its tables and plots.
        settings: Settings in the order of the table.
        clients: The population.
        alphabet: The alphabet of its words.
        word_selection: See `Task`.
        delta: The delta of all guarantees, in (0, 1).
        data: The fingerprints of the populations, by name.
        seed: The seed of all runs' cohorts, at least 0.
        ks: The K for which the true top K are scored.
        report: Makes the files of the results from the tables.
        num_repeats: One: a setting's runs are repeats of the engine's.
    """

    title: str
    settings: tuple[Setting, ...]
    clients: client_words.ClientWords
    alphabet: alphabet_lib.Alphabet
    word_selection: selection.WordSelection
    delta: float
    data: Mapping[str, str]
    seed: int
    ks: tuple[int, ...]
    report: Callable[["Comparison", study.Tables], dict[str, bytes]]
    num_repeats: int = 1

    @functools.cached_property
    def algorithms(self) -> Mapping[str, algorithm_lib.Algorithm[Any, Any]]:
        """The algorithms by their settings' names, made once.

        Raises:
            ValueError: If the statement of one has a larger epsilon than its setting.
        """
        return {setting.name: self._algorithm_of(setting) for setting in self.settings}

    def _algorithm_of(self, setting: Setting) -> algorithm_lib.Algorithm[Any, Any]:
        made = setting.contestant.make(
            Task(
                self.clients,
                self.alphabet,
                setting.epsilon,
                self.delta,
                self.word_selection,
            )
        )
        epsilon, bound = stated_epsilon(made.plan, self.delta)
        if epsilon > setting.epsilon * (1 + _SLACK):
            raise ValueError(
                f"{setting.contestant.name} states epsilon {epsilon:g} at delta "
                f"{self.delta:g} ({bound}); the comparison asks for at most "
                f"{setting.epsilon:g}"
            )
        return made

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a setting, or what is left of it; see `study.Study`.

        Returns:
            runs: a row for each run and variant, with how many words were found, how
            many of them are real, precision, and the seconds of its rounds. scores: one
            for each K, with recall and F1. discovery: one for each of the most frequent
            words, with how many of the runs found it. `part` gets what one run states.
        """
        algorithm = self.algorithms[setting.name]
        start = time.perf_counter()
        outcome = engine.run(
            algorithm,
            part,
            seed=noise_keys.derived(self.seed, "comparison", repeat) >> 65,
            repeats=setting.num_runs,
            delta=self.delta,
            save_every=1_000,
        )
        logging.info("%.1f s.", time.perf_counter() - start)
        # Of one run: all runs of a study together are nobody's mechanism.
        made = algorithm.plan.statement(None, self.delta)
        part.simulator.write_bytes("privacy.md", made.to_markdown().encode())
        epsilon, bound = stated_epsilon(algorithm.plan, self.delta)
        local = algorithm.plan.contribution.local_epsilon
        local = math.nan if local is None else local
        seconds = part.metrics().groupby("repeat")["seconds"].sum()
        truth = evaluation.GroundTruth.of(self.clients, self.word_selection)
        place = {word: i for i, word in enumerate(self.clients.words.to_pylist())}
        found: dict[str, list[np.ndarray]] = {}
        tables: dict[str, list[dict[str, Any]]] = {"runs": [], "scores": []}
        for run, state in enumerate(outcome.states):
            for variant, words in setting.contestant.words(algorithm, state).items():
                ids = np.array([place.get(word, -1) for word in words], np.int64)
                found.setdefault(variant, []).append(ids)
                scores = evaluation.scores_at_k(ids, truth, self.ks)
                about = self._about(setting, variant) | {"run": run}
                precision = float(scores["precision"].iloc[0])
                tables["runs"].append(
                    about
                    | {
                        "words_found": len(words),
                        "words_real": int(
                            np.count_nonzero(truth.counts[ids[ids >= 0]])
                        ),
                        "precision": precision,
                        "stated_epsilon": epsilon,
                        "bound": bound,
                        "local_epsilon": local,
                        "seconds": float(seconds[run]),
                    }
                )
                columns = ["k", "precision", "recall", "f1"]
                tables["scores"] += [
                    about | row for row in scores[columns].to_dict("records")
                ]
        tables["discovery"] = self._discovery(setting, algorithm, truth, found)
        return tables

    def files(self, tables: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        return self.report(self, tables)

    def _about(self, setting: Setting, variant: str) -> dict[str, Any]:
        name = setting.contestant.name
        return {
            "contestant": name,
            "variant": variant,
            "line": f"{name}, {variant}" if variant else name,
            "epsilon": setting.epsilon,
        }

    def _discovery(
        self,
        setting: Setting,
        algorithm: algorithm_lib.Algorithm[Any, Any],
        truth: evaluation.GroundTruth,
        found: Mapping[str, Sequence[np.ndarray]],
    ) -> list[dict[str, Any]]:
        """Returns the runs that found each of the most frequent words.

        `found_in_run` has a 1 for each run that did, and a 0 for each that did not.
        """
        rows: list[dict[str, Any]] = []
        for variant, runs in found.items():
            table = evaluation.discovery_rates(runs, truth, _MOST_RANKS)
            ids = table.pop("word_id").to_numpy()
            table["characters"] = [len(self.clients.word(i)) for i in ids]
            table["share"] = table["true_count"] / self.clients.num_clients
            table["runs"] = len(runs)
            table["runs_found"] = (
                (table.pop("discovery_rate") * len(runs)).round().astype(int)
            )
            in_run = np.stack([np.isin(ids, words) for words in runs], axis=1)
            table["found_in_run"] = [
                "".join("01"[found] for found in row) for row in in_run.tolist()
            ]
            table["worst_case"] = np.nan
            if setting.contestant.worst_case:
                table["worst_case"] = setting.contestant.worst_case(
                    algorithm, table["true_count"].to_numpy(np.int64)
                )
            about = self._about(setting, variant)
            rows += [about | row for row in table.to_dict("records")]
        return rows


def scores_of(tables: study.Tables) -> pd.DataFrame:
    """Returns means over runs of recall and F1 of the top K, with intervals."""
    from studies import intervals

    return intervals.of_means(
        tables["scores"],
        ["contestant", "variant", "line", "epsilon", "k"],
        ["precision", "recall", "f1"],
    )
