"""Noise that is correlated over rounds, on sums of updates: BLT, and banded.

The noise of rounds is Z = C^-1 z for a lower-triangular Toeplitz matrix C (`toeplitz`)
and independent noise z, so that much of what a round adds is taken off again by the
rounds after it: prefix sums, which a model is, have half the noise of a tree's at the
same zCDP (McMahan, Xu and Zhang 2024). It has no last round.

Noise is drawn on integers. With a sum x, which is an integer vector, a round releases R
= x 2^k + E. The noise E = z - [sum_s c_(t-s) E_s] is computed from the draws alone: z
is the discrete Gaussian of `discrete_gaussian`, and [] a rounding of floats to
integers. 2^k makes the numbers so fine that z's standard deviation is about 2^46. Given
earlier releases, R is an integer that data and past determine, plus the discrete
Gaussian: as a Gaussian that was rounded at random, it is post-processing of a
continuous one (docs/integer_noise.md). From one neighbour to the other that integer
moves by a row of C times the client's contributions, but for what the roundings differ
by, for which `numeric_slack` is added. Everything computed from R is post-processing.

What is remembered, the buffers, would give the exact sums to who knows what was
released. So the state has them encrypted with the noise key, again in each round.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import (
    blt,
    model_updates,
    toeplitz,
    tree_aggregation,
    update_noise,
)
from federated_hh.randomness import identities, integer_noise, streams

# The leak by float rounding grows with the number of values of a sum: these are 128 M.
LARGEST_SIZE = 2**27
_FINE_BITS = 46
# Units of the noise are shifts of 64-bit integers.
_MOST_FINER_BITS = 62
# No drawn number is farther from 0, in standard deviations of 2^45 and more.
_REACH = 15
# Far enough from where 64 bits end for floats to tell.
_LARGEST_NUMBER = 2.0**62


@dataclasses.dataclass(frozen=True)
class Correlated(integer_noise.IntegerNoise):
    """Integer noise that a Toeplitz matrix correlates; see this module's docstring.

    The standard deviation, that of z, has to be the same from one restart to the next.

    Attributes:
        matrix: C.
    """

    matrix: toeplitz.Matrix

    def restart(self, state: integer_noise.NoiseState) -> integer_noise.NoiseState:
        """Returns the state with which the noise restarts."""
        return integer_noise.NoiseState(state.tree + 1)

    def add(
        self,
        total: np.ndarray,
        stddev: float,
        state: integer_noise.NoiseState,
        stream: streams.Stream,
    ) -> tuple[np.ndarray, integer_noise.NoiseState]:
        """Returns a round's release, and the next state."""
        size, bits = len(total), _finer_bits(stddev)
        stream = stream.at(identities.canonical(self.matrix), float(stddev).hex())
        if size > LARGEST_SIZE:
            raise ValueError(f"sums have {size:,} values; 1 to 2^27 are possible.")
        place = (state.tree, 0, state.rounds)
        noise = self._draw(size, math.ldexp(stddev, bits), stream, *place)
        buffers = self._opened(size, state, stream)
        if buffers:
            mixed = self.matrix.mix(buffers)
            noise -= np.rint(mixed, out=mixed).astype(np.int64)
            del mixed
        # The integer x 2^k + E, which may have more than 64 bits, in two parts.
        released = (total + (noise >> bits)).astype(np.float64)
        released += (noise & ((1 << bits) - 1)) * 0.5**bits
        buffers = self.matrix.advance(buffers, noise)
        rounds = state.rounds + 1
        hidden = tuple(
            _bits_of(stream, state.tree, rounds, number).encrypted(buffer)
            for number, buffer in enumerate(buffers)
        )
        after = integer_noise.NoiseState(
            state.tree, rounds, hidden=hidden, history=stream.history
        )
        return released, after

    def _opened(self, size: int, state, stream) -> list[np.ndarray]:
        """Returns the buffers of a state."""
        if not state.rounds:
            return [np.zeros(size, np.int64) for _ in range(self.matrix.num_buffers)]
        stream = stream.of(state.history)
        return [
            _bits_of(stream, state.tree, state.rounds, number).encrypted(hidden)
            for number, hidden in enumerate(state.hidden)
        ]


def _bits_of(stream: streams.Stream, tree: int, rounds: int, number: int):
    """Returns the key stream of a buffer: of a tree, after some rounds."""
    return stream.bits("buffer", tree, rounds, number)


def _finer_bits(stddev: float) -> int:
    """Returns k: noise is drawn in units 2^-k of the sum's."""
    return max(0, _FINE_BITS - math.frexp(stddev)[1])


def _check_scale(name: str, stddev: float) -> None:
    """Refuses noise that would need finer units than 64 bits have."""
    if _finer_bits(stddev) > _MOST_FINER_BITS:
        raise ValueError(
            f"{name} has a standard deviation of {stddev:g} units of the sum; it has "
            f"to be at least {math.ldexp(1.0, _FINE_BITS - _MOST_FINER_BITS):g}"
        )


@functools.lru_cache(maxsize=1024)
def numeric_slack(matrix: toeplitz.Matrix, num_rounds: int) -> float:
    """Bounds the contribution of float rounding to a client's effect.

    Args:
        matrix: C.
        num_rounds: Rounds done.

    Returns:
        A bound on the L2 norm of the difference of neighbours' rounding errors, in all
        rounds and numbers, over the standard deviation of z.
    """
    stddev = math.ldexp(0.5, _FINE_BITS)
    # By 1/2 to the next integer, and by what the sum is off; for both neighbours.
    off = 0.5 + matrix.rounding_error(num_rounds, _REACH * stddev)
    return 2 * off * math.sqrt((LARGEST_SIZE + 1) * num_rounds) / stddev


def zcdp(square: float, noise_multiplier: float, slack: float) -> float:
    """Computes rho of a squared sensitivity.

    Args:
        square: The squared sensitivity of C x, at least 0.
        noise_multiplier: z, above 0.
        slack: Slack, from `numeric_slack`; not counted where nobody took part.

    Returns:
        (sqrt(square) / z + slack)^2 / 2, rounded upwards.
    """
    if not square:
        return 0.0
    return rounding.sum_upwards(
        (math.sqrt(square) / noise_multiplier + slack) ** 2 / 2, 16
    )


@identities.identity(
    "CorrelatedNoise",
    "num_rounds clip_norm noise_multiplier adaptive_clip restart_rounds matrix",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedNoise(update_noise.RestartedNoise):
    """The base class of `BltNoise` and `BandedNoise`.

    Attributes:
        matrix: C, from restart to restart.
    """

    matrix: toeplitz.Matrix

    planned: ClassVar[str] = (
        "zCDP of one Gaussian mechanism on C x: the worst case over all participations "
        "that MinS and MaxP allow (Kalinin and Lampert 2024, Theorem 2), for restarts "
        "a bound over all ways to divide MaxP among the blocks between them; what "
        "rounding of floats can tell is added "
        "(federated_hh.privacy.dp_ftrl.correlated_noise)."
    )
    realised: ClassVar[str] = (
        "zCDP of one Gaussian mechanism on C x, restarts included, for the client "
        "whose participations, as they were, cost the most; what rounding of floats "
        "can tell is added (federated_hh.privacy.dp_ftrl.correlated_noise)."
    )
    verifiability: ClassVar[str] = (
        "The accounting is open source. The worst case follows from the matrix below "
        "(federated_hh.privacy.dp_ftrl.toeplitz; federated_hh.run_accounting "
        "--mechanism=blt gives it of a BLT, "
        "whose numbers --forgotten and --weights take); what was realised, which may "
        "be less, from the list of participations in the run's checkpoints too. The "
        "run itself is a simulation."
    )

    @functools.cached_property
    def kind(self) -> Correlated:
        """The noise on sums, and on counts."""
        return Correlated(self.matrix)

    def parameters(self, num_rounds: int) -> dict[str, float | int | str]:
        """Returns the mechanism's parameters in statements, by name."""
        return super().parameters(num_rounds) | {
            "noise correlated by C": identities.canonical(self.matrix),
            "noise on the worst prefix sum, in clip norms": self.prefix_stddev(
                num_rounds
            ),
        }

    def prefix_stddev(self, num_rounds: int) -> float:
        """See base class."""
        squares = [
            toeplitz.largest_error(self.matrix, length) ** 2
            for length in self._lengths(num_rounds)
        ]
        return self.delta_multiplier(0) * math.sqrt(sum(squares))

    def check_room(self, cohort_size: int) -> None:
        """Raises `ValueError` where a noisy sum could leave its integers."""
        unit = model_updates.ClippedUpdate.sensitivity
        self._check_sum(
            "noise_multiplier", self.delta_multiplier(0) * unit, cohort_size, unit
        )
        if self.adaptive_clip is not None:
            counts = update_noise.COUNT_UNIT
            self._check_sum("count_stddev", self.count_stddev(), cohort_size, counts)

    def _check_sum(self, name: str, stddev: float, cohort_size: int, unit: int) -> None:
        _check_scale(name, stddev)
        bits = _finer_bits(stddev)
        largest = _REACH * math.ldexp(stddev, bits)
        noise = toeplitz.absolute_sum(self.matrix, self.num_rounds) * largest
        buffer = self.matrix.largest_buffer(self.num_rounds, largest)
        # A round's sum alone: only the noise is correlated.
        released = cohort_size * unit + noise / 2**bits
        if max(noise, buffer, released) > _LARGEST_NUMBER:
            raise ValueError(
                f"a sum of {cohort_size:,} clients, with correlated noise of standard "
                f"deviation {stddev:g}, could exceed 64 bits: lower {name} or "
                "cohort_size."
            )

    def zcdp(self, limits: plan_lib.Limits, num_rounds: int) -> float:
        """Returns rho in the worst case; see `model_updates.UpdateMechanism`."""
        limits = update_noise.possible_limits(limits, num_rounds)
        square = toeplitz.square_sensitivity_of_blocks(
            self.matrix,
            self._lengths(num_rounds),
            limits.max_participation,
            limits.min_separation,
        )
        slack = numeric_slack(self.matrix, num_rounds)
        return zcdp(square, self.noise_multiplier, slack)

    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns rho of what happened; see `model_updates.UpdateMechanism`."""
        square = toeplitz.observed_square_sensitivity(
            self.matrix, clients, rounds, self._lengths(num_rounds)
        )
        slack = numeric_slack(self.matrix, num_rounds)
        return zcdp(square, self.noise_multiplier, slack)

    def _lengths(self, num_rounds: int) -> Sequence[int]:
        """Returns the rounds of each block."""
        return tree_aggregation.tree_lengths(
            num_rounds, self.restarts_before(num_rounds)
        )


@identities.identity(
    "BltNoise",
    "num_rounds clip_norm noise_multiplier adaptive_clip restart_rounds matrix",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class BltNoise(CorrelatedNoise):
    """DP-FTRL with buffered linear Toeplitz noise (McMahan, Xu and Zhang 2024).

    Attributes:
        matrix: C; `blt.optimal` finds it.
    """

    matrix: blt.Blt

    name: ClassVar[str] = "blt"
    about: ClassVar[str] = (
        "DP-FTRL with buffered linear Toeplitz noise: Gaussian noise on the integer "
        "sums of clipped updates, of which each round takes a part off again that d "
        "buffers remember, with server momentum (McMahan, Xu and Zhang 2024)"
    )


@identities.identity(
    "BandedNoise",
    "num_rounds clip_norm noise_multiplier adaptive_clip restart_rounds matrix",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedNoise(CorrelatedNoise):
    """DP-FTRL with banded noise, which remembers a vector a band.

    Attributes:
        matrix: C.
    """

    matrix: toeplitz.SquareRoot

    name: ClassVar[str] = "banded"
    about: ClassVar[str] = (
        "DP-FTRL with banded noise: Gaussian noise on the integer sums of clipped "
        "updates, correlated with that of the rounds before by the square root of the "
        "prefix sums' matrix, with server momentum (Kalinin and Lampert 2024)"
    )
