"""Gaussian noise on integer sums of rounds: tree-aggregated, or independent.

A tree over rounds has a node for every complete dyadic interval of them. A node's
*noisy total* is the integer sum of its rounds with integer noise (`discrete_gaussian`).
Releases are computed from noisy totals alone, in float64, after the noise; so neither
the rounding of floats nor an exact sum next to the noise can tell more. A state holds
noisy totals and estimates made of them. When two nodes become children of another, the
sum of the first follows by drawing its noise again and subtracting it: the noise of a
node is a function of the node and of the round's random stream: of its key, of what the
noise is for, and of the history of the run up to the round.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from federated_hh.randomness import discrete_gaussian, streams

# The stated distance of the noise from a Gaussian relies on this.
_LARGEST_SIZE = 2**31


@functools.lru_cache(maxsize=8)
def sampler_of(stddev: float) -> discrete_gaussian.DiscreteGaussian:
    """Returns the sampler of a standard deviation, whose table is kept."""
    return discrete_gaussian.DiscreteGaussian(stddev)


def check_room(stddev: float, largest_sum: int) -> None:
    """Raises `ValueError` where a noisy total could leave its 64 bits.

    Args:
        stddev: The standard deviation of the noise, in units of the sums; above 0 and
            at most 2^56.
        largest_sum: No sum of a node's rounds has a number farther from 0.
    """
    largest = sampler_of(stddev).largest
    if largest_sum + largest >= 2**63:
        raise ValueError(
            f"sums of up to 2^{largest_sum.bit_length()} with noise of up to "
            f"2^{largest.bit_length()} could exceed 64 bits: lower noise_multiplier, "
            "cohort_size or num_rounds."
        )


@dataclasses.dataclass(frozen=True)
class Node:
    """A node whose parent is not complete.

    Attributes:
        total: int64 [size]: the noisy total.
        estimate: float64 [size]: of the same sum, from the noisy totals of the whole
            subtree.
        history: History of the stream that drew the noise.
    """

    total: np.ndarray
    estimate: np.ndarray
    history: bytes


@dataclasses.dataclass(frozen=True)
class NoiseState:
    """The noise's state between rounds.

    Attributes:
        tree: Number of earlier trees.
        rounds: Rounds of this tree.
        nodes: The complete nodes that the rounds are the union of, the largest first;
            none where noise is independent.
        hidden: int64 [size] each: what correlated noise remembers, encrypted.
        history: History of the stream that encrypted it.
    """

    tree: int = 0
    rounds: int = 0
    nodes: tuple[Node, ...] = ()
    hidden: tuple[np.ndarray, ...] = ()
    history: bytes = b""


class IntegerNoise(abc.ABC):
    """Base class of `Tree`, `Independent` and `correlated_noise.Correlated`."""

    @abc.abstractmethod
    def restart(self, state: NoiseState) -> NoiseState:
        """Returns the state with which a new tree starts."""

    @abc.abstractmethod
    def add(
        self,
        total: np.ndarray,
        stddev: float,
        state: NoiseState,
        stream: streams.Stream,
    ) -> tuple[np.ndarray, NoiseState]:
        """Returns what is released of a round, and the next state.

        Args:
            total: int64 [size]: the round's sum, of 1 to 2^31 values.
            stddev: The standard deviation of the noise on a noisy total, in units of
                the sums; above 0.
            state: The state after the last round.
            stream: The stream of this noise, with a history of 32 bytes: a digest of
                this sum and of all that were before it. A round that is computed again
                with other sums gets other noise.
        """

    def _draw(
        self, size: int, stddev: float, stream: streams.Stream, *place: int
    ) -> np.ndarray:
        """Returns the noise of a node: int64 [size]."""
        parts = self._draw_parts(size, stddev, stream, *place)
        return discrete_gaussian.joined(parts, size)

    def _draw_parts(
        self, size: int, stddev: float, stream: streams.Stream, *place: int
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields the noise of a node a part at a time.

        Its bits depend on the scale too: the difference of two draws that share bits,
        at two scales, would show the sums.
        """
        if not 1 <= size <= _LARGEST_SIZE:
            raise ValueError(f"sums have {size:,} values; 1 to 2^31 are possible.")
        bits = stream.bits("scale", float(stddev).hex(), *place)
        return sampler_of(stddev).parts(bits, size)


class Tree(IntegerNoise):
    """The residuals of tree-aggregated noise, in Honaker's efficient form.

    What is released of a round is the estimate of the prefix sum up to the round less
    that of the one before it, so that releases add up to estimates of prefix sums
    (Kairouz et al. 2021; Xu et al. 2023, PrivateSum). A prefix is a union of complete
    nodes; each is estimated by its noisy total and by its children's estimates, with
    weights that make the variance least (Honaker 2015). The standard deviation has to
    be the same throughout a tree.
    """

    def restart(self, state: NoiseState) -> NoiseState:
        """Returns the state with which a new tree starts."""
        return NoiseState(state.tree + 1)

    def add(
        self,
        total: np.ndarray,
        stddev: float,
        state: NoiseState,
        stream: streams.Stream,
    ) -> tuple[np.ndarray, NoiseState]:
        """Returns what is released of a round, and the next state."""
        size, position = len(total), state.rounds
        if any(len(node.total) != size for node in state.nodes):
            raise ValueError(
                f"sums have {size:,} values; they need as many as in earlier rounds, "
                f"{len(state.nodes[0].total):,}."
            )
        draw = functools.partial(self._draw_parts, size, stddev)
        nodes, merges = list(state.nodes), []
        for height in range(1, (position + 1).bit_length()):
            if position + 1 & (1 << height) - 1:
                break
            first, index = nodes.pop(), position >> height
            of_first = stream.of(first.history), state.tree, height - 1, 2 * index
            noise = draw(stream, state.tree, height, index)
            merges.append(_Merge(first, draw(*of_first), noise, height))
        # Vectors are as large as a model: all but what is kept are made in parts.
        kept = Node(np.empty(size, np.int64), np.empty(size), stream.history)
        released = np.empty(size)
        for place, noisy in draw(stream, state.tree, 0, position):
            exact = total[place]
            noisy += exact
            estimate = noisy.astype(np.float64)
            for merge in merges:
                exact, noisy, estimate = merge.apply(place, exact, estimate)
            kept.total[place], kept.estimate[place] = noisy, estimate
            released[place] = _prefix((*nodes, kept), place)
            released[place] -= _prefix(state.nodes, place)
        return released, NoiseState(state.tree, position + 1, (*nodes, kept))


@dataclasses.dataclass(frozen=True)
class _Merge:
    """Two nodes that become the children of another, a part at a time.

    Attributes:
        first: The first child.
        first_noise: Its noise, drawn again.
        noise: Noise of their parent.
        height: The parent's.
    """

    first: Node
    first_noise: Iterator[tuple[slice, np.ndarray]]
    noise: Iterator[tuple[slice, np.ndarray]]
    height: int

    def apply(
        self, place: slice, exact: np.ndarray, estimate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the next part of the parent: its sum, noisy total and estimate.

        Args:
            place: Position of the part.
            exact: The part of the second child's sum.
            estimate: The part of its estimate, which is overwritten.
        """
        exact = exact + self.first.total[place]
        exact -= next(self.first_noise)[1]
        _, noisy = next(self.noise)
        noisy += exact
        # The estimate's variance over that of a noisy total.
        share = 1 / (2 - 0.5**self.height)
        estimate += self.first.estimate[place]
        estimate *= 1 - share
        estimate += share * noisy
        return exact, noisy, estimate


def _prefix(nodes: Sequence[Node], place: slice) -> np.ndarray:
    total = np.zeros(place.stop - place.start)
    for node in nodes:
        total += node.estimate[place]
    return total


class Independent(IntegerNoise):
    """Independent noise in each round, of whatever standard deviation each has."""

    def restart(self, state: NoiseState) -> NoiseState:
        """Returns the state unchanged: rounds have nothing in common."""
        return state

    def add(
        self,
        total: np.ndarray,
        stddev: float,
        state: NoiseState,
        stream: streams.Stream,
    ) -> tuple[np.ndarray, NoiseState]:
        """Returns what is released of a round, and the next state."""
        drawn = self._draw(len(total), stddev, stream, state.tree, 0, state.rounds)
        noisy = (total + drawn).astype(np.float64)
        return noisy, NoiseState(state.tree, state.rounds + 1)
