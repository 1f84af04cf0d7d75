"""Rounds that runtimes and engines are compared on: votes, reports, training, scores.

Each is a computation of the project's own on synthetic clients, and gives the sums that
came of it, which are to be the same whatever computes them.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from federated_hh.populations.columns import client_words
    from federated_hh.rounds import algorithm as algorithm_lib

Sums = dict[str, "np.ndarray"]

_SEED = 1
_MAX_LENGTH = 8
_NUM_TOKENS = 500
_SENTENCES = 16


@dataclasses.dataclass(frozen=True)
class Workload:
    """Rounds of one kind.

    Attributes:
        name: In tables.
        clients: Asked in all rounds together.
        is_exact: Whether its sums are of integers, and so the same to the bit.
        rounds: Yields the sums of each round; to be called where a runtime computes.
    """

    name: str
    clients: int
    is_exact: bool
    rounds: Callable[[], Iterator[Sums]]


def population(scratch: str, num_clients: int) -> "client_words.ClientWords":
    """Returns synthetic clients' words, below a directory."""
    from federated_hh.populations import population as population_lib

    return population_lib.prepare(
        population_lib.PopulationOptions(
            num_clients=num_clients, seed=_SEED, tokenizer="triehh"
        ),
        os.path.join(scratch, "populations"),
    )


def votes(words: "client_words.ClientWords", cohort_size: int) -> Workload:
    """Returns all rounds of TrieHH."""
    from federated_hh.heavy_hitters import alphabet, selection
    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.populations.languages import tokenizers
    from federated_hh.privacy.triehh import guarantees as triehh_privacy

    parameters = triehh_privacy.TrieHHParameters(
        words.num_clients, cohort_size, max(4, cohort_size // 300), _MAX_LENGTH
    )
    plan = triehh.plan_of(parameters, selection.WordSelection.BY_FREQUENCY)
    characters = tokenizers.get_tokenizer("triehh").alphabet
    algorithm = triehh.TrieHH(words, plan, alphabet.Alphabet(characters))
    return Workload(
        "TrieHH's votes",
        cohort_size,
        True,
        lambda: ({"votes": total} for total in _totals(algorithm)),
    )


def reports(words: "client_words.ClientWords", cohort_size: int) -> Workload:
    """Returns all levels of LDP TrieHH, with reports of epsilon 4."""
    from federated_hh.heavy_hitters import alphabet
    from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
    from federated_hh.heavy_hitters.ldp_triehh.parameters import LdpTrieHHParameters
    from federated_hh.populations.languages import tokenizers

    parameters = LdpTrieHHParameters(
        cohort_size=cohort_size,
        max_depth=3,
        max_prefixes=20,
        contribution_bound=1,
        epsilon=4.0,
    )
    characters = tokenizers.get_tokenizer("triehh").alphabet
    algorithm = ldp_triehh.LdpTrieHH(words, parameters, alphabet.Alphabet(characters))
    return Workload(
        "LDP TrieHH's reports",
        cohort_size,
        True,
        lambda: ({"reports": total} for total in _totals(algorithm)),
    )


def _totals(algorithm: "algorithm_lib.Algorithm[Any, Any]") -> Iterator[Any]:
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps

    by_hand = steps.Steps(
        algorithm, seed=_SEED, noise_key=noise_keys.NoiseKey.of_seed(_SEED)
    )
    place = by_hand.begin()
    while (query := algorithm.next_query(place.state)) is not None:
        drawn = by_hand.draw(place)
        total = by_hand.ask(place, query, drawn.cohort)
        yield total
        place = by_hand.update(place, query, drawn, total).progress


def training(
    scratch: str, num_clients: int, num_units: int = 64, num_blocks: int = 16
) -> tuple[Workload, Workload]:
    """Returns a round of training with an exact sum, and one of evaluation.

    Args:
        scratch: Where the clients' text is written.
        num_clients: All of whom train, and of whom all are scored.
        num_units: The number of units of the model, an LSTM with coupled gates.
        num_blocks: Into how many values the clients are cut.
    """
    import numpy as np

    from federated_hh.populations.columns import client_text
    from training.federated import client_update
    from training.models import model
    from training.text import examples

    random = np.random.default_rng(_SEED)
    rows = [
        (
            str(client),
            [
                random.integers(4, _NUM_TOKENS, random.integers(3, 12)).tolist()
                for _ in range(_SENTENCES)
            ],
        )
        for client in range(num_clients)
    ]
    directory = os.path.join(scratch, f"text-{num_clients}")
    if os.path.exists(directory):
        text = client_text.ClientText.open(directory)
    else:
        text = client_text.ClientText.from_rows(directory, rows)
    network = model.cifg_language_model(
        _NUM_TOKENS,
        num_units=num_units,
        projection_size=num_units // 2,
        embedding_size=num_units // 2,
    )
    federated = client_update.FederatedRounds(
        network,
        examples.MappedText(text, examples.ClientLimits()),
        client_update.LocalTraining(0.5),
        num_blocks=num_blocks,
    )
    weights = network.initial_weights(_SEED)
    everyone = np.arange(num_clients)

    def train() -> Iterator[Sums]:
        found = federated.train(weights, everyone, 0.3, 0.3)
        yield {**found.parts, "below": np.array(found.num_below)}

    def score() -> Iterator[Sums]:
        yield {
            name: np.array(value)
            for name, value in federated.evaluate(weights, everyone).items()
        }

    return (
        Workload("training, exact sum", num_clients, False, train),
        Workload("evaluation", num_clients, False, score),
    )


def difference(some: list[Sums], others: list[Sums]) -> float:
    """Returns how far sums are apart: 0 where they are the same to the bit.

    Returns:
        The largest L2 distance of two arrays, over the norm of the one; infinite where
        they have not the same shapes.
    """
    import numpy as np

    largest = 0.0
    for one, other in zip(some, others, strict=True):
        for name, array in one.items():
            if array.shape != other[name].shape:
                return float("inf")
            if np.array_equal(array, other[name]):
                continue
            apart = np.linalg.norm(np.subtract(array, other[name], dtype=float))
            scale = np.linalg.norm(array.astype(float))
            largest = max(largest, float(apart / scale) if scale else float("inf"))
    return largest
