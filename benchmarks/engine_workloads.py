"""Rounds that runtimes and engines are compared on: votes, reports, training, scores.

Each is a computation of the project on synthetic clients, and gives sums that have to
be the same on every runtime and engine.
"""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from federated_hh.runtime.worker import engine_options

if TYPE_CHECKING:
    import numpy as np

    from federated_hh.populations.columns import client_words
    from federated_hh.rounds import algorithm as algorithm_lib

Sums = dict[str, "np.ndarray"]

WORKER, IN_PROCESS = "worker", "in_process"
FAULTS = (
    "actor killed",
    "TFF worker killed",
    "actor stopped",
    "TFF worker stopped",
    "node removed",
)
_SEED = 1
_MAX_LENGTH = 8
_NUM_TOKENS = 500
_SENTENCES = 16


@dataclasses.dataclass(frozen=True)
class Workload:
    """Rounds of one kind.

    Attributes:
        name: Name in tables.
        clients: Number of clients of all rounds together.
        is_exact: Whether sums are of integers, and so equal to the bit.
        rounds: Yields the sums of each round; called within `computing`.
    """

    name: str
    clients: int
    is_exact: bool
    rounds: Callable[[], Iterator[Sums]]


@contextlib.contextmanager
def computing(backend: str, device: str | None = None) -> Iterator[None]:
    """Computes by a back end.

    Args:
        backend: `WORKER`, `IN_PROCESS`, or "ray" and a number of actors.
        device: Device that computes in this process; None for TensorFlow's choice.
    """
    from federated_hh.runtime import runtime

    if backend == IN_PROCESS:
        kind = engine_options.Runtime.IN_PROCESS
        engine_options.choose(engine_options.RuntimeOptions(kind, device))
    elif backend != WORKER:
        engine_options.choose(
            engine=engine_options.EngineOptions(
                engine_options.Engine.RAY, num_workers=int(backend.split()[1])
            )
        )
    try:
        with runtime.computing():
            yield
    finally:
        engine_options.choose()


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
    from federated_hh.heavy_hitters import selection
    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.privacy.triehh import guarantees as triehh_privacy

    parameters = triehh_privacy.TrieHHParameters(
        words.num_clients, cohort_size, max(4, cohort_size // 300), _MAX_LENGTH
    )
    plan = triehh.plan_of(parameters, selection.WordSelection.BY_FREQUENCY)
    algorithm = triehh.TrieHH(words, plan, _alphabet())
    return _of("TrieHH's votes", cohort_size, "votes", algorithm)


def reports(words: "client_words.ClientWords", cohort_size: int) -> Workload:
    """Returns all levels of LDP TrieHH, with reports of epsilon 4."""
    from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
    from federated_hh.heavy_hitters.ldp_triehh.parameters import LdpTrieHHParameters

    parameters = LdpTrieHHParameters(
        cohort_size=cohort_size,
        max_depth=3,
        max_prefixes=20,
        contribution_bound=1,
        epsilon=4.0,
    )
    algorithm = ldp_triehh.LdpTrieHH(words, parameters, _alphabet())
    return _of("LDP TrieHH's reports", cohort_size, "reports", algorithm)


def _alphabet() -> Any:
    from federated_hh.heavy_hitters import alphabet
    from federated_hh.populations.languages import tokenizers

    return alphabet.Alphabet(tokenizers.get_tokenizer("triehh").alphabet)


def _of(
    name: str,
    clients: int,
    sums: str,
    algorithm: "algorithm_lib.Algorithm[Any, Any]",
) -> Workload:
    """Returns an algorithm's rounds, with the name of their sums."""

    def rounds() -> Iterator[Sums]:
        from federated_hh.randomness import noise_keys
        from federated_hh.rounds import steps

        by_hand = steps.Steps(
            algorithm, seed=_SEED, noise_key=noise_keys.NoiseKey.of_seed(_SEED)
        )
        progress = by_hand.begin()
        while (query := algorithm.next_query(progress.state)) is not None:
            drawn = by_hand.draw(progress)
            total = by_hand.ask(progress, query, drawn.cohort)
            yield {sums: total}
            progress = by_hand.update(progress, query, drawn, total).progress

    return Workload(name, clients, True, rounds)


def training(
    scratch: str, num_clients: int, num_units: int = 64, num_blocks: int = 16
) -> tuple[Workload, Workload]:
    """Returns a round of training with an exact sum, and one of evaluation.

    Args:
        scratch: Directory for the clients' text.
        num_clients: Number of clients; all train, and all are evaluated.
        num_units: Number of units of the model, an LSTM with coupled gates.
        num_blocks: Number of values into which the clients are cut.
    """
    import numpy as np

    from federated_hh.populations.columns import client_text
    from training.federated import client_update
    from training.models import model
    from training.text import examples

    random = np.random.default_rng(_SEED)

    def sentence() -> list[int]:
        return random.integers(4, _NUM_TOKENS, random.integers(3, 12)).tolist()

    directory = os.path.join(scratch, f"text-{num_clients}")
    if os.path.exists(directory):
        text = client_text.ClientText.open(directory)
    else:
        rows = [
            (str(client), [sentence() for _ in range(_SENTENCES)])
            for client in range(num_clients)
        ]
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
        found = federated.evaluate(weights, everyone)
        yield {name: np.array(value) for name, value in found.items()}

    return (
        Workload("training, exact sum", num_clients, False, train),
        Workload("evaluation", num_clients, False, score),
    )


def difference(some: list[Sums], others: list[Sums]) -> float:
    """Returns the distance of two runs' sums: 0 where they are the same to the bit.

    Returns:
        The largest L2 distance of two arrays, over the norm of the first; infinite
        where their shapes differ.
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


def fault(
    kind: str, pids: tuple[int, int], remove_node: Callable[[], None]
) -> Callable[[], None]:
    """Returns a function that lets something fail.

    Args:
        kind: One of `FAULTS`.
        pids: Ids of an actor and of its worker.
        remove_node: Removes a node of the cluster.
    """
    if kind == "node removed":
        return remove_node
    actor, worker = pids
    how = signal.SIGSTOP if "stopped" in kind else signal.SIGKILL
    return lambda: os.kill(actor if kind.startswith("actor") else worker, how)
