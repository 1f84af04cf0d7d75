"""A run whose words are scored, of any algorithm that releases words."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import coverage, deny_list, evaluation
from federated_hh.populations.columns import client_words, generated_words
from federated_hh.reports import default_page
from federated_hh.rounds import algorithm as algorithm_lib
from federated_hh.rounds import experiment

# Values of K, and how many words have their discovery rate listed.
_KS = (1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_NUM_LISTED = 1000


def run(
    algorithm: algorithm_lib.Algorithm[Any, Any],
    output_dir: str,
    deny: deny_list.DenyList,
    **arguments: Any,
) -> experiment.Experiment[Any]:
    """Runs an algorithm, and prints the first of its results.

    An algorithm releases words if its results have a table `heavy_hitters` with a
    column `word`; its attribute `clients` is who has them. The scores are of the
    simulator's part.

    Args:
        algorithm: The algorithm.
        output_dir: The run directory.
        deny: Words that are not released.
        **arguments: Others of `experiment.run_experiment`.
    """

    def report(directory, outcome, statement):
        found = [algorithm.results(s).values() for s in outcome.states]
        words = [t["word"] for t in itertools.chain(*found) if "word" in t]
        return experiment.write_default(
            algorithm,
            directory,
            outcome,
            statement,
            score=lambda results: deny.allowed_rows(_scores(algorithm, results)),
            kept=deny.released,
            remark=deny.told(itertools.chain(*words)),
        )

    done = experiment.run_experiment(
        algorithm, output_dir, facts=deny.facts(), report=report, **arguments
    )
    results = algorithm.results(done.outcome.states[0])
    for name, table in deny.released(results).items():
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
    return _tables(clients, [list(t["word"]) for t in tables])


def _tables(
    population: generated_words.Words, found: Sequence[Sequence[str]]
) -> dict[str, pd.DataFrame]:
    """Scores the words of any algorithm, by how many clients have each.

    Args:
        population: The clients.
        found: The distinct words that each repeat released, the best first.

    Returns:
        Tables by name. coverage: a row a repeat, with words_found, words_real and
        coverage (see `coverage.WordTotals`). scores: see `evaluation.scores_at_k`
        and `mean_and_interval`. discovery_rate: see `evaluation.discovery_rates`, with
        each word for its number.
    """
    totals = coverage.WordTotals.of(population)
    truth = evaluation.GroundTruth.of_counts(totals.holders.astype(np.float64))
    places = [totals.places(words) for words in found]
    rows = [
        {
            "repeat": repeat,
            "words_found": len(words),
            "words_real": int(np.count_nonzero(places[repeat] >= 0)),
            "coverage": totals.coverage(words),
        }
        for repeat, words in enumerate(found)
    ]
    ks = [k for k in _KS if k <= max(1, len(truth.order))]
    discovery = evaluation.discovery_rates(places, truth, _NUM_LISTED)
    words = [population.word(place) for place in discovery.pop("word_id")]
    discovery.insert(0, "word", words)
    scores = [evaluation.scores_at_k(ids, truth, ks) for ids in places]
    return {
        "coverage": pd.DataFrame(rows),
        "scores": evaluation.mean_and_interval(scores, "k"),
        "discovery_rate": discovery,
    }
