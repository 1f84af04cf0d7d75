"""Mechanisms of set union: noisy sums or totals of words, and a threshold."""

import dataclasses
import functools
from typing import Any

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian
from federated_hh.randomness import identities, integer_noise, streams


@dataclasses.dataclass(frozen=True)
class Released:
    """The words that reach a pass's threshold.

    Attributes:
        words: int64 [released]: indices into the sums, ascending.
        weights: int64 [released]: noisy sums, or noisy totals.
        levels: uint8 [words]: with adaptive weights, each word's level for the clients
            that sent it; else empty. Not for the public.
    """

    words: np.ndarray
    weights: np.ndarray
    levels: np.ndarray = dataclasses.field(
        default_factory=functools.partial(np.zeros, 0, np.uint8)
    )


@identities.identity("NoisyWeights", "noise_multipliers thresholds")
@dataclasses.dataclass(frozen=True)
class NoisyWeights(plan_lib.Mechanism[integer_noise.NoiseState]):
    """Adds noise to the sums above 0, and releases those that reach the threshold.

    Attributes:
        noise_multipliers: The noise of each pass, over a client's L2 norm.
        thresholds: The noisy sum that a word needs in each pass, in integers.
    """

    noise_multipliers: tuple[float, ...]
    thresholds: tuple[int, ...]

    def initialize(self) -> integer_noise.NoiseState:
        """Returns the state before the first pass."""
        return integer_noise.NoiseState()

    def release(
        self,
        total: Any,
        state: integer_noise.NoiseState,
        facts: plan_lib.Facts,
        stream: streams.Stream,
    ) -> plan_lib.Release[integer_noise.NoiseState]:
        """Returns `Released`, of the sums of all words: int64 [words].

        A sum of 0 gets no noise: nobody sends the word, and no aggregator that knows
        words by their hashes has ever heard of it.
        """
        del facts
        threshold = self.thresholds[state.rounds]
        sent, noisy, state = _with_noise(total, self.noise_multipliers, state, stream)
        passed = noisy >= threshold
        return plan_lib.Release(Released(sent[passed], noisy[passed]), state)


def _with_noise(
    total: np.ndarray,
    noise_multipliers: tuple[float, ...],
    state: integer_noise.NoiseState,
    stream: streams.Stream,
) -> tuple[np.ndarray, np.ndarray, integer_noise.NoiseState]:
    """Returns the words that somebody sent, their noisy sums, and the next state."""
    sent = np.flatnonzero(total > 0)
    if not len(sent):
        return sent, sent, dataclasses.replace(state, rounds=state.rounds + 1)
    stddev = noise_multipliers[state.rounds] * weighted_gaussian.NORM
    noisy, state = integer_noise.Independent().add(total[sent], stddev, state, stream)
    # Whole numbers below 2^53 (`plan._Theorem.check`), in float64.
    return sent, noisy.astype(np.int64), state


@dataclasses.dataclass(frozen=True)
class Totals:
    """The state of `NoisyTotals`: noisy totals, of unreleased words too.

    Attributes:
        noise: The noise's state.
        totals: int64 [words]: totals, 0 of words that nobody sent; empty at first.
    """

    noise: integer_noise.NoiseState
    totals: np.ndarray


@identities.identity("NoisyTotals", "noise_multipliers thresholds factors")
@dataclasses.dataclass(frozen=True)
class NoisyTotals(plan_lib.Mechanism[Totals]):
    """Adds up noisy sums over passes, and releases totals that reach the threshold.

    Attributes:
        noise_multipliers: The noise of each pass, over a client's L2 norm.
        thresholds: The total that a word needs in each pass, in integers.
        factors: The factor of each pass's sums in a total.
    """

    noise_multipliers: tuple[float, ...]
    thresholds: tuple[int, ...]
    factors: tuple[int, ...]

    def initialize(self) -> Totals:
        """Returns the state before the first pass."""
        return Totals(integer_noise.NoiseState(), np.zeros(0, np.int64))

    def release(
        self,
        total: Any,
        state: Totals,
        facts: plan_lib.Facts,
        stream: streams.Stream,
    ) -> plan_lib.Release[Totals]:
        """Returns `Released`, of the sums of all words: int64 [words].

        As with `NoisyWeights`, a sum of 0 gets no noise.
        """
        del facts
        number = state.noise.rounds
        sent, noisy, noise = _with_noise(
            total, self.noise_multipliers, state.noise, stream
        )
        totals = state.totals.copy() if number else np.zeros(len(total), np.int64)
        totals[sent] += self.factors[number] * noisy
        passed = totals[sent] >= self.thresholds[number]
        released, left = sent[passed], sent[~passed]
        levels = np.zeros(len(total), np.uint8)
        # The most words of a client do not matter to them.
        passes = adaptive_gaussian.AdaptiveGaussian(
            1, self.noise_multipliers, self.thresholds, self.factors
        )
        levels[left] = passes.levels(number, totals[left])
        value = Released(released, totals[released], levels)
        return plan_lib.Release(value, Totals(noise, totals))
