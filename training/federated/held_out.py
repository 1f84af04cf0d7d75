"""Held-out clients, which train nothing and evaluate the model."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from federated_hh.options import checks
from federated_hh.populations.columns import client_text, resampled_text
from federated_hh.randomness import streams
from training.models import metric_names

if TYPE_CHECKING:  # these import TensorFlow
    from federated_hh.rounds import run
    from training.federated import client_update, dp_ftrl


@dataclasses.dataclass(frozen=True)
class Clients:
    """Training and held-out clients.

    Attributes:
        training: int64 [n], ascending: indices into the population.
        held_out: int64 [m], ascending: others.
    """

    training: np.ndarray
    held_out: np.ndarray

    @classmethod
    def of(
        cls, text: client_text.ClientText, num_held_out: int, seed: int
    ) -> "Clients":
        """Draws the clients of a population that are held out.

        Of simulated clients who have people's sentences, people are held out: one
        client of each evaluates, and their other clients are left out of training.

        Args:
            text: The population's text.
            num_held_out: Number of held-out clients, at least 1 and fewer than all.
            seed: The run's seed.
        """
        if not isinstance(text, resampled_text.ResampledText):
            return cls.split(text.num_clients, num_held_out, seed)
        people, firsts = np.unique(text.person_of, return_index=True)
        held_out = cls.split(len(people), num_held_out, seed, "people").held_out
        is_held_out = np.isin(text.person_of, people[held_out])
        return cls(np.flatnonzero(~is_held_out), np.sort(firsts[held_out]))

    @classmethod
    def split(
        cls, num_clients: int, num_held_out: int, seed: int, noun: str = "clients"
    ) -> "Clients":
        """Draws the clients that are held out, uniformly.

        Args:
            num_clients: The number of clients of the population.
            num_held_out: Number of held-out clients, at least 1 and fewer than all.
            seed: The run's seed.
            noun: Name of the clients in the error.
        """
        if not 1 <= num_held_out < num_clients:
            raise ValueError(
                f"--num_held_out_clients is {num_held_out}; it has to be in "
                f"1..{num_clients - 1} for {num_clients:,} {noun}."
            )
        order = streams.generator(seed, "held-out clients").permutation(num_clients)
        return cls(np.sort(order[num_held_out:]), np.sort(order[:num_held_out]))


class Evaluation:
    """Observes how good the model is on held-out clients."""

    def __init__(
        self,
        rounds: "client_update.FederatedRounds",
        clients: np.ndarray,
        evaluate_every: int = 10,
    ):
        """Prepares the evaluation.

        Args:
            rounds: The clients' side.
            clients: int64, at least one: who is held out.
            evaluate_every: Rounds between evaluations, at least 1; the last round has
                one too.
        """
        checks.integer(least=1, evaluate_every=evaluate_every)
        self._rounds = rounds
        self._clients = clients
        self._evaluate_every = evaluate_every

    def __call__(
        self, observed: "run.Observed[dp_ftrl.TrainingState]"
    ) -> dict[str, float]:
        """Returns the metrics after a round; NaN where it has no evaluation."""
        if observed.is_last or observed.number % self._evaluate_every == 0:
            metrics: Mapping[str, float] = self._rounds.evaluate(
                observed.state.model, self._clients
            )
        else:
            metrics = collections.OrderedDict.fromkeys(
                metric_names.LABELS, float("nan")
            )
        return {f"held_out_{name}": value for name, value in metrics.items()}
