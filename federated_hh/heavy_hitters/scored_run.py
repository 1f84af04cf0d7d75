"""A run whose words are scored, of any algorithm that releases words."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.heavy_hitters import evaluation
from federated_hh.populations.columns import client_words, generated_words
from federated_hh.reports import default_page
from federated_hh.rounds import algorithm as algorithm_lib
from federated_hh.rounds import experiment


def run(
    algorithm: algorithm_lib.Algorithm[Any, Any], output_dir: str, **arguments: Any
) -> experiment.Experiment[Any]:
    """Runs an algorithm, and prints the first of its results.

    An algorithm releases words if its results have a table `heavy_hitters` with a
    column `word`; its attribute `clients` is who has them. The scores are of the
    simulator's part.

    Args:
        algorithm: The algorithm.
        output_dir: The run directory.
        **arguments: Others of `experiment.run_experiment`.
    """
    report = functools.partial(
        experiment.write_default,
        algorithm,
        score=functools.partial(_scores, algorithm),
    )
    done = experiment.run_experiment(algorithm, output_dir, report=report, **arguments)
    for name, table in algorithm.results(done.outcome.states[0]).items():
        shown = default_page.by_estimate(table).head(10)
        print(f"{name}:\n{shown.to_string(index=False)}")
    return done


def _scores(
    algorithm: algorithm_lib.Algorithm[Any, Any],
    results: Mapping[str, Sequence[pd.DataFrame]],
) -> dict[str, pd.DataFrame]:
    """Returns the scores of the words of each repeat, if there are words."""
    clients: Any = getattr(algorithm, "clients", None)
    tables = results.get("heavy_hitters", ())
    kinds = (client_words.ClientWords, generated_words.GeneratedWords)
    if not isinstance(clients, kinds) or not tables:
        return {}
    if any("word" not in table for table in tables):
        return {}
    return evaluation.tables_of_words(clients, [list(t["word"]) for t in tables])
