"""Gaussian noise on integer sums of rounds: tree-aggregated, or independent.

A tree over rounds has a node for every complete dyadic interval of them. A node's
*noisy total* is the integer sum of its rounds with integer noise (`discrete_gaussian`).
What is released is computed from noisy totals alone, in float64, after the noise; so
neither the rounding of floats nor an exact sum beside the noise can tell more. A state
holds noisy totals and estimates made of them. When two nodes become children of
another, the sum of the first is had by drawing its noise again and taking it off: the
noise of a node is a function of the key, of what the noise is for, of the node, and of
the history of the run up to it, which the caller gives.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from randomness import discrete_gaussian, keyed_bits

_HISTORY_BYTES = 32
# What is stated of the noise's distance from a Gaussian counts on this.
_LARGEST_SIZE = 2**31


@dataclasses.dataclass(frozen=True)
class _Node:
    """A node whose parent is not complete.

    Attributes:
        total: int64 [size]: the noisy total.
        estimate: float64 [size]: of the same sum, from the noisy totals of the whole
            subtree.
        history: What the noise was drawn with.
    """

    total: np.ndarray
    estimate: np.ndarray
    history: bytes


@dataclasses.dataclass(frozen=True)
class NoiseState:
    """Where the noise stands between rounds.

    Attributes:
        tree: How many trees there were before.
        rounds: Rounds of this tree.
        nodes: The complete nodes that the rounds are the union of, the largest first;
            none where noise is independent.
    """

    tree: int = 0
    rounds: int = 0
    nodes: tuple[_Node, ...] = ()


class _IntegerNoise:
    """What both kinds share; see `TreeNoise` and `GaussianNoise`."""

    def __init__(
        self,
        size: int,
        stddev: float,
        largest_sum: int,
        noise_key: int,
        *purpose: str,
    ):
        """Begins a stream of noise.

        Args:
            size: Of the sums, 1 to 2^31.
            stddev: Of the noise on a noisy total, in units of the sums; above 0.
            largest_sum: No sum of a node's rounds has a number farther from 0.
            noise_key: The run's secret, in [0, 2^128).
            *purpose: What the noise is for: other purposes have other noise.

        Raises:
            ValueError: If `size` is out of range, or a noisy total could leave its 64
                bits.
        """
        if not 1 <= size <= _LARGEST_SIZE:
            raise ValueError(f"sums have {size:,} values, must have 1 to 2^31.")
        self._size = size
        self._sampler = discrete_gaussian.DiscreteGaussian(stddev)
        if largest_sum + self._sampler.largest >= 2**63:
            raise ValueError(
                f"sums of up to 2^{largest_sum.bit_length()} with noise of up to "
                f"2^{self._sampler.largest.bit_length()} could leave 64 bits: lower "
                "noise_multiplier, report_goal or num_rounds."
            )
        self._key = noise_key
        self._purpose = purpose

    def initial_state(self) -> NoiseState:
        """Returns the state before the first round."""
        return NoiseState()

    def _draw(self, history: bytes, *place: int) -> np.ndarray:
        bits = keyed_bits.KeyedBits(self._key, "noise", *self._purpose, history, *place)
        return self._sampler.sample(bits, self._size)

    def to_arrays(self, state: NoiseState) -> dict[str, np.ndarray]:
        """Returns a state as arrays by name; see `from_arrays`."""
        shape = (len(state.nodes), self._size)
        totals, estimates = np.empty(shape, np.int64), np.empty(shape, np.float64)
        for i, node in enumerate(state.nodes):
            totals[i], estimates[i] = node.total, node.estimate
        history = b"".join(node.history for node in state.nodes)
        return {
            "place": np.array([state.tree, state.rounds], np.int64),
            "totals": totals,
            "estimates": estimates,
            "histories": np.frombuffer(history, np.uint8).reshape(-1, _HISTORY_BYTES),
        }

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> NoiseState:
        """Returns the state whose `to_arrays` gave `arrays`.

        Raises:
            ValueError: If they are of sums of another size.
        """
        if arrays["totals"].shape[1] != self._size:
            raise ValueError(
                f"the noise's state is of {arrays['totals'].shape[1]:,} values, "
                f"must be of {self._size:,}."
            )
        columns = (arrays[name] for name in ("totals", "estimates", "histories"))
        nodes = tuple(
            _Node(total, estimate, history.tobytes())
            for total, estimate, history in zip(*columns, strict=True)
        )
        tree, rounds = arrays["place"].tolist()
        return NoiseState(tree, rounds, nodes)


class TreeNoise(_IntegerNoise):
    """The residuals of tree-aggregated noise, in Honaker's efficient form.

    What is released of a round is the estimate of the prefix sum up to the round less
    that of the one before it, so that releases add up to estimates of prefix sums
    (Kairouz et al. 2021; Xu et al. 2023, PrivateSum). A prefix is a union of complete
    nodes; each is estimated by its noisy total and by its children's estimates, with
    weights that make the variance least (Honaker 2015).
    """

    def restart(self, state: NoiseState) -> NoiseState:
        """Returns the state with which a new tree starts."""
        return NoiseState(state.tree + 1)

    def add(
        self, total: np.ndarray, state: NoiseState, history: bytes
    ) -> tuple[np.ndarray, NoiseState]:
        """Returns what is released of a round, and the next state.

        Args:
            total: int64 [size]: the round's sum.
            state: The state after the last round.
            history: 32 bytes, a digest of this sum and of all that were before it: a
                round that is computed again with other sums gets other noise.
        """
        nodes, position = list(state.nodes), state.rounds
        before = self._prefix(nodes)
        noisy = total + self._draw(history, state.tree, 0, position)
        estimate = noisy.astype(np.float64)
        exact = total.copy()
        for height in range(1, (position + 1).bit_length()):
            if position + 1 & (1 << height) - 1:
                break
            first = nodes.pop()
            index = position >> height
            exact += first.total
            exact -= self._draw(first.history, state.tree, height - 1, 2 * index)
            noisy = exact + self._draw(history, state.tree, height, index)
            # The estimate's variance over that of a noisy total.
            share = 1 / (2 - 0.5**height)
            estimate = share * noisy + (1 - share) * (first.estimate + estimate)
        nodes.append(_Node(noisy, estimate, history))
        released = self._prefix(nodes) - before
        return released, NoiseState(state.tree, position + 1, tuple(nodes))

    def _prefix(self, nodes: list[_Node]) -> np.ndarray:
        total = np.zeros(self._size)
        for node in nodes:
            total += node.estimate
        return total


class GaussianNoise(_IntegerNoise):
    """Independent noise in each round, with the same interface as `TreeNoise`."""

    def restart(self, state: NoiseState) -> NoiseState:
        """Returns the state as it is: rounds have nothing in common."""
        return state

    def add(
        self, total: np.ndarray, state: NoiseState, history: bytes
    ) -> tuple[np.ndarray, NoiseState]:
        """Returns what is released of a round, and the next state; see `TreeNoise`."""
        noisy = total + self._draw(history, state.tree, 0, state.rounds)
        return noisy.astype(np.float64), NoiseState(state.tree, state.rounds + 1)
