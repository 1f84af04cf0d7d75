"""Questions about a device's most frequent word, answered by local reports.

Each round asks other clients which of a few items their most frequent word is. A
subclass defines each word's item, and the conclusions from the estimates.
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
import tensorflow as tf

from federated_hh.heavy_hitters import generated_clients, selection
from federated_hh.populations import population
from federated_hh.populations.columns import generated_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.randomizers import arguments, local_randomizer
from federated_hh.randomness import identities
from federated_hh.rounds import algorithm, block_round, client_bytes, samplers
from federated_hh.runtime import compiled

S = TypeVar("S")
# Clients of a TFF client value.
_BLOCK_SIZE = 25_000


class WordQuestions(algorithm.Algorithm[S, np.ndarray]):
    """Asks each client at most once, for one report of a local randomizer."""

    contents = "words"

    def __init__(
        self,
        clients: generated_words.Words,
        make_randomizer: type[local_randomizer.LocalRandomizer],
        epsilon: float,
        *,
        cohort_size: int,
        num_items: int,
        num_rounds: int = 1,
        population_has_empty_users: bool = False,
    ):
        """Makes the plan.

        Args:
            clients: The population.
            make_randomizer: The class of local randomizers.
            epsilon: The epsilon of a report, above 0 and finite.
            cohort_size: Clients of a round, at least 1.
            num_items: Items of a question, at least 1; "none of them" comes on top.
            num_rounds: The most questions, at least 1.
            population_has_empty_users: Whether clients without words were kept; `of`
                knows it.

        Raises:
            ValueError: If the population has fewer clients than all rounds ask, or an
                argument is out of range.
        """
        self.clients = clients
        self.max_rounds = num_rounds
        self.num_items = num_items
        arguments.check_memory(make_randomizer, epsilon, num_items + 1, _BLOCK_SIZE)
        self.randomizer = make_randomizer(epsilon, num_items + 1)
        self.plan = plan_lib.Plan(
            sampler=samplers.DisjointCohorts(clients.num_clients, cohort_size),
            contribution=local_reports_plan.OneReport(
                randomizer=make_randomizer,
                epsilon=epsilon,
                replacement_epsilon=self.randomizer.guarantee.replacement_epsilon,
                name=identities.label_of(make_randomizer),
                num_rounds=num_rounds,
                max_candidates=num_items,
                population_has_empty_users=population_has_empty_users,
                algorithm=identities.label_of(type(self)),
            ),
            mechanism=plan_lib.NoNoise(),
        )
        self._votes = block_round.BlockRound(
            self._work, {"votes": 1}, block_size=_BLOCK_SIZE
        )

    @classmethod
    def of(cls, options, population_options, cache, seed) -> Self:
        """Makes one for `run_algorithm`: of its options and the clients."""
        del seed
        make: Any = cls  # a subclass is made of its options and the clients
        made = make(options, population.prepare_words(population_options, cache))
        kept = population_options.empty_clients == "keep"
        reports = dataclasses.replace(
            made.plan.contribution, population_has_empty_users=kept
        )
        made.plan = dataclasses.replace(made.plan, contribution=reports)
        return made

    @functools.cached_property
    def _words(self) -> list[str]:
        # Making the list takes longer than a round's reports.
        return self.clients.words.to_pylist()

    @abc.abstractmethod
    def items(self, state: S, words: list[str]) -> list[int] | None:
        """Returns the next question; None after the last one.

        Args:
            state: State so far.
            words: All words of the population, each once; not to be changed.

        Returns:
            The item of each word, in [0, num_items), or -1 for none.
        """

    @abc.abstractmethod
    def learn(
        self, state: S, estimates: np.ndarray
    ) -> tuple[S, Mapping[str, float | int]]:
        """Returns the next state, and metrics.

        Args:
            state: State that `items` was called with.
            estimates: Estimated clients of the cohort with each item, float64
                [num_items].
        """

    def describe(self) -> dict[str, Any]:
        """Returns all that a sum depends on besides the plan; a subclass adds to it."""
        return {"population": self.clients.fingerprint, "items": self.num_items}

    def next_query(self, state: S) -> algorithm.Query[np.ndarray] | None:
        """Returns the next question, asked of other clients than all before."""
        items = self.items(state, self._words)
        if items is None:
            return None
        message = {"item_of_word": np.array(items, np.int32)}
        return algorithm.Query(
            lambda cohort, stream: self._votes(message, cohort, stream)["votes"],
            {
                local_reports_plan.CANDIDATES: self.num_items,
                local_reports_plan.REPORTS: self.plan.sampler.cohort_size,
            },
            functools.partial(self._client_bytes, items),
        )

    def _client_bytes(self, items: list[int]) -> client_bytes.ClientBytes:
        """Returns a client's bytes: words that have an item, with it, and a report.

        An item takes 4 bytes. A question that an application knows without a list of
        words needs less.
        """
        asked = [w for w, item in zip(self._words, items, strict=True) if item >= 0]
        clients = self.plan.sampler.cohort_size
        return client_bytes.ClientBytes(
            client_bytes.of_words(asked) + 4 * len(asked),
            client_bytes.of_reports(self.plan.contribution, self.num_items, clients),
        )

    def update(
        self, state: S, released: np.ndarray
    ) -> tuple[S, Mapping[str, float | int]]:
        """Returns the result of `learn` for the sum of reports."""
        asked = self.plan.sampler.cohort_size
        return self.learn(state, self.randomizer.estimate(released, asked))

    def _work(self, message, block):
        most = selection.WordSelection.MOST_FREQUENT
        with compiled.reading():
            words = generated_clients.words_of(self.clients).select(
                most, block["clients"], None
            )
            items = tf.gather(message["item_of_word"], tf.maximum(words, 0))
            items = tf.where(words >= 0, items, -1)
        return {"votes": selection.votes(items, self.num_items, _BLOCK_SIZE)}
