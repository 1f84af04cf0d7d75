"""Populations of any size, drawn from the frequencies of real ones.

Zhu et al. 2020, Section 5: the frequencies of words are counted, and a data set of a
given size is sampled from them.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from federated_hh.heavy_hitters import evaluation, selection
from federated_hh.options import checks
from federated_hh.populations.columns import (
    canonical_rows,
    client_words,
    column_writer,
    prepared_data,
)

_FORMAT_VERSION = 3
_CLIENTS_AT_ONCE = 1 << 16
# What is drawn: clients with the most frequent word of a client, with an occurrence of
# a word, or with all that a client has.
FAVORITES, OCCURRENCES, CLIENTS = "favorites", "occurrences", "clients"


def resampled(
    population: client_words.ClientWords,
    num_clients: int,
    what: str,
    *,
    seed: int,
    cache: str | os.PathLike[str],
) -> client_words.ClientWords:
    """Returns a population of independent draws from another, made on first use.

    Args:
        population: Population to draw from.
        num_clients: Number of clients that are drawn, with replacement; at least 1.
        what: `FAVORITES`, each client having the most frequent word of one that has
            words; `OCCURRENCES`, having a word in proportion to how often all clients
            have it; or `CLIENTS`, having all words of one.
        seed: Seed, at least 0.
        cache: Directory of prepared populations.

    Raises:
        ValueError: If `what` or a number is none of these.
    """
    checks.one_of((FAVORITES, OCCURRENCES, CLIENTS), what=what)
    checks.integer(num_clients=num_clients, least=1)
    identity = {
        "format_version": _FORMAT_VERSION,
        "source": {"kind": "resampled", "of": population.fingerprint},
        "options": {"num_clients": num_clients, "what": what, "seed": seed},
    }

    def make(directory: pathlib.Path, origin: dict[str, Any]) -> None:
        random = np.random.default_rng(np.random.SeedSequence(seed))
        chunks = (
            _clients(population, num_clients, random)
            if what == CLIENTS
            else _words(population, num_clients, what, random)
        )
        origin = origin | {"drawn_from": population.num_clients}
        column_writer.write_columns(directory, chunks, population.words, None, origin)

    directory = prepared_data.find_or_make(cache, f"resampled-{what}", identity, make)
    return prepared_data.open_prepared(
        directory, identity, client_words.ClientWords.open
    )


def _words(
    population: client_words.ClientWords,
    num_clients: int,
    what: str,
    random: np.random.Generator,
) -> Iterator[canonical_rows.Rows]:
    """Yields clients of one word each, those of one word side by side."""
    if what == FAVORITES:
        weights = evaluation.GroundTruth.of(
            population, selection.WordSelection.MOST_FREQUENT
        ).counts
    else:
        weights = population.occurrences()
    drawn = random.multinomial(num_clients, weights / weights.sum())
    words = np.repeat(np.arange(population.num_words), drawn)
    ones = np.ones(num_clients, np.int64)
    yield canonical_rows.Rows(words, ones, ones, words)


def _clients(
    population: client_words.ClientWords,
    num_clients: int,
    random: np.random.Generator,
) -> Iterator[canonical_rows.Rows]:
    """Yields clients with all words of a client drawn."""
    for first in range(0, num_clients, _CLIENTS_AT_ONCE):
        size = min(_CLIENTS_AT_ONCE, num_clients - first)
        yield population.rows(random.integers(0, population.num_clients, size))
