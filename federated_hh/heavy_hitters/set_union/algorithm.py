"""Set union: all words that enough clients have, at a trusted aggregator.

Gopi et al. 2020, "Differentially Private Set Union", the weighted Gaussian at user
level; in passes, of which later ones leave out what earlier ones released, as Swanberg
et al. 2023 (DP-SIPS), or have adaptive weights, as Chen et al. 2025.

    algorithm = SetUnion(population, plan.plan_of(sampler, passes))
    outcome = run.run(algorithm, directory, seed=1)
    print(algorithm.results(outcome.states[0])["heavy_hitters"])

A deployed aggregator adds up weights by word, or by a hash of it, and knows no list of
words. Here the words of all clients have numbers, by which the sums are a vector; words
without a weight are 0 in it, and the mechanism ignores them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from federated_hh.heavy_hitters import selection
from federated_hh.populations.columns import client_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.sets import mechanisms, weighted_gaussian
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, block_round, client_bytes, run
from federated_hh.runtime import compiled

# A block of clients is one TFF client value: a few for the worker's threads, with so
# many of the clients' words each. The worker keeps the sums of all blocks.
_LEAST_BLOCKS = 16
_ENTRIES_PER_BLOCK = 1 << 20
_MOST_CLIENTS_PER_BLOCK = 1 << 20
_MOST_SUMS_KEPT = 1 << 26


@dataclasses.dataclass(frozen=True)
class SetUnionState:
    """The released words.

    Attributes:
        words: int64 [found]: indices into the population's words, in the order of their
            passes, of a pass those with the largest noisy weights first.
        weights: float64 [found]: noisy sums, in weights of a client with one word.
        passes: int64 [found]: the pass that released the word, from 1.
        levels: uint8 [words]: what clients weigh their words by in the next pass, 0 for
            a word that they leave out.
        rounds: Passes done.
    """

    words: np.ndarray
    weights: np.ndarray
    passes: np.ndarray
    levels: np.ndarray
    rounds: int = 0

    def only(self, is_kept: Sequence[bool]) -> Self:
        """Returns the state without some released words: bool [found]."""
        kept = np.array(is_kept, bool)
        arrays = {n: getattr(self, n)[kept] for n in ("words", "weights", "passes")}
        return dataclasses.replace(self, **arrays)


def sent_metrics(observed: run.Observed[SetUnionState]) -> dict[str, float]:
    """Observes the words that clients send, and the released words' part of them."""
    total, released = observed.total, observed.released.words
    return {
        "words_sent": int(np.count_nonzero(total)),
        "released_share": float(total[released].sum() / max(1, total.sum())),
    }


@identities.identity("federated_hh.set_union.SetUnion")
class SetUnion(algorithm.Algorithm[SetUnionState, np.ndarray]):
    """Set union over a population."""

    def __init__(
        self,
        population: client_words.ClientWords,
        plan: plan_lib.Plan[
            Any,
            sets_plan.WordWeights,
            mechanisms.NoisyWeights | mechanisms.NoisyTotals,
        ],
        num_blocks: int | None = None,
    ):
        """Prepares the client computation.

        Args:
            population: The clients.
            plan: Plan of everybody, from `sets_plan.plan_of`.
            num_blocks: Number of client values; by default a fast one. The result does
                not depend on it.

        Raises:
            ValueError: If the plan is for another number of clients, or no client has a
                word.
        """
        if plan.sampler.num_clients != population.num_clients:
            raise ValueError(
                f"the plan is for {plan.sampler.num_clients:,} clients, and the "
                f"population has {population.num_clients:,}; make one for it"
            )
        if not population.num_entries:
            raise ValueError("no client of the population has a word; give other data")
        self.population = population
        self.plan = plan
        self._passes = sets_plan.passes_of(plan)
        self._is_adaptive = isinstance(plan.mechanism, mechanisms.NoisyTotals)
        self.max_rounds = self._passes.num_passes
        if num_blocks is None:
            num_blocks = math.ceil(population.num_entries / _ENTRIES_PER_BLOCK)
            num_blocks = min(num_blocks, _MOST_SUMS_KEPT // population.num_words)
            many = math.ceil(population.num_clients / _MOST_CLIENTS_PER_BLOCK)
            num_blocks = max(num_blocks, many, _LEAST_BLOCKS)
        # A word is sent as a line.
        sizes = pc.binary_length(population.words).to_numpy(zero_copy_only=False)
        self._word_bytes = (sizes + 1).astype(np.int32)
        most = plan.contribution.contribution_bound * int(self._word_bytes.max())
        self._bytes_sent = 0  # by all clients, in the last pass
        self._sums = block_round.BlockRound(
            self._weights_of_block,
            {"weights": weighted_gaussian.NORM, "bytes": most},
            block_size=block_round.block_size_of(population.num_clients, num_blocks),
        )

    def describe(self) -> Mapping[str, Any]:
        """Returns everything that a sum of weights depends on besides the plan."""
        return {"population": self.population.fingerprint}

    def initialize(self, repeat: int) -> SetUnionState:
        """Returns the state before the first pass: nothing is released."""
        del repeat
        none = np.zeros(0, np.int64)
        return SetUnionState(
            none, np.zeros(0), none, np.ones(self.population.num_words, np.uint8)
        )

    def next_query(self, state: SetUnionState) -> algorithm.Query[np.ndarray] | None:
        """Returns the question for the weights of all words not left out."""
        if state.rounds == self.max_rounds:
            return None

        def ask(cohort: np.ndarray, stream: streams.Stream) -> np.ndarray:
            if self._is_adaptive:  # a client draws its words once
                stream = stream.of(b"")
            message = {
                "levels": state.levels,
                "word_bytes": self._word_bytes,
                # Of the round and not of a block: a client's draw does not depend on
                # how the clients are cut.
                "seed": stream.stateless_seed("chosen words"),
            }
            sums = self._sums(message, cohort, stream)
            self._bytes_sent = int(sums["bytes"])
            return np.asarray(sums["weights"])

        def of_client() -> client_bytes.ClientBytes:
            mean = round(self._bytes_sent / self.population.num_clients)
            told = int(self._word_bytes[state.words].sum())
            if self._is_adaptive:  # a byte for the level of each word that it sent
                told = self.plan.contribution.contribution_bound * (state.rounds > 0)
            return client_bytes.ClientBytes(told, mean)

        return algorithm.Query(ask, {"words_left_out": len(state.words)}, of_client)

    def update(
        self, state: SetUnionState, released: mechanisms.Released
    ) -> tuple[SetUnionState, Mapping[str, float | int]]:
        """Adds the words that a pass released."""
        number = state.rounds + 1
        order = np.argsort(-released.weights, kind="stable")
        weights = released.weights[order] / self._passes.unit(state.rounds)
        levels = released.levels
        if not self._is_adaptive:
            levels = state.levels.copy()
            levels[released.words] = 0
        after = SetUnionState(
            np.concatenate([state.words, released.words[order]]),
            np.concatenate([state.weights, weights]),
            np.concatenate([state.passes, np.full(len(order), number, np.int64)]),
            levels,
            number,
        )
        metrics = {"words_released": len(order), "words_found": len(after.words)}
        return after, metrics

    def results(self, state: SetUnionState) -> Mapping[str, pd.DataFrame]:
        """Returns the released words: word, pass, weight."""
        words = self.population.words.take(pa.array(state.words))
        columns = {
            "word": np.array(words.to_pylist(), object),
            "pass": state.passes,
            "weight": state.weights,
        }
        return {"heavy_hitters": pd.DataFrame(columns)}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns the log line of a pass."""
        return (
            f"{row['words_released']:,} words released, {row['words_found']:,} so far"
        )

    def _weights_of_block(self, message, block) -> dict[str, tf.Tensor]:
        """Returns the sums of a block's weights: int64 [words].

        The body of the client computation. Each client draws `contribution_bound` of
        its words if it has more, and sends those not left out with weights in
        proportion to their levels. With uniform weights, it leaves words out before it
        draws.
        """
        columns = selection.MappedColumns(self.population)
        clients = block["clients"]
        with compiled.reading():
            entries, splits = columns.entries_of(clients)
            start = tf.gather(columns.row_splits(), clients[0])
        words = columns.word_ids(entries)
        size = tf.size(clients)
        owners = tf.repeat(tf.range(size), splits[1:] - splits[:-1])
        # Everybody is asked, so that a block's clients, and their entries, follow each
        # other: each entry has its own counter.
        bits = selection.random_bits(message["seed"], start, tf.size(entries))
        levels = tf.cast(tf.gather(message["levels"], words), tf.int64)
        if not self._is_adaptive:
            is_left = levels > 0
            words, owners, bits, levels = (
                part[is_left] for part in (words, owners, bits, levels)
            )
        counts = tf.math.bincount(owners, minlength=size, maxlength=size)
        bound = self.plan.contribution.contribution_bound
        has_more = tf.gather(counts, owners) > bound
        chosen = _chosen(owners[has_more], bits[has_more], bound)
        words, owners, levels = (
            tf.concat([part[~has_more], tf.gather(part[has_more], chosen)], 0)
            for part in (words, owners, levels)
        )
        sums = tf.math.unsorted_segment_sum(
            _weights(levels, owners, size), words, self.population.num_words
        )
        sizes = tf.gather(message["word_bytes"], words[levels > 0])
        return {
            "weights": tf.ensure_shape(sums, [self.population.num_words]),
            "bytes": tf.reduce_sum(tf.cast(sizes, tf.int64)),
        }


def _weights(levels: tf.Tensor, owners: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns clients' weights, whose L2 norm is at most 2^20 and nearly that.

    Args:
        levels: int64 [n]: level of each word, at most 16.
        owners: int32 [n]: the word's client.
        size: Number of clients.

    Returns:
        int64 [n]: floor(sqrt(2^40 l^2 / s)) for a level l of a client whose levels have
        the sum of squares s.
    """
    squares = levels * levels
    totals = tf.maximum(
        tf.gather(tf.math.unsorted_segment_sum(squares, owners, size), owners), 1
    )
    numerators = weighted_gaussian.NORM**2 * squares
    roots = tf.sqrt(tf.cast(numerators, tf.float64) / tf.cast(totals, tf.float64))
    found = tf.cast(roots, tf.int64)
    # Rounding can only have passed the next integer.
    return found - tf.cast(found * found * totals > numerators, tf.int64)


def _chosen(owners: tf.Tensor, bits: tf.Tensor, bound: int) -> tf.Tensor:
    """Returns `bound` entries of each owner, a uniform draw without replacement.

    Args:
        owners: int32 [n], ascending, at most 2^23 of them: the owner of each entry.
        bits: uint64 [n]: random bits of each entry.
        bound: Entries to choose of each owner, each of whom has more.

    Returns:
        int32 [chosen]: places in `owners`.
    """
    random = tf.cast(tf.bitwise.right_shift(bits, tf.constant(24, tf.uint64)), tf.int64)
    keys = tf.bitwise.left_shift(tf.cast(owners, tf.int64), tf.constant(40, tf.int64))
    order = tf.argsort(keys + random)
    # The sorted entries have the same owners, and each owner's are in random order.
    places = tf.range(tf.size(owners))
    starts = tf.searchsorted(owners, owners)
    return order[places - starts < bound]
