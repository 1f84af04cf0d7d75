"""zCDP of DP-FTRL: noise in the nodes of a tree, and who may take part when.

A tree over rounds has a node for every complete dyadic interval [i 2^h, (i+1) 2^h) of
its rounds, and each node's sum gets Gaussian noise of standard deviation z C. A client
that takes part with norm at most C in some rounds changes the vector of all node sums
by at most C sqrt(S2), where S2 is the sum over nodes of (rounds in it)^2. So one tree
is one Gaussian mechanism, with rho = S2 / (2 z^2) zCDP (Kairouz et al. 2021, appendix
D).

Adjacency is zero-out: one client's contributions are replaced by zeros in all rounds
(a special form of add-or-remove one client). For replacement, rho is 4 times this.

Conventions. `min_separation` (MinS) counts the rounds strictly between two
participations of a client, as in TensorFlow Privacy and Xu et al. 2023: rounds 3 and 7
have a separation of 3. Matrix-factorization code counts the difference, MinS + 1.
`max_participation` (MaxP) is a promise of the system; where nobody makes it, it is
ceil(rounds / (MinS + 1)), which MinS alone implies. floor(rounds / MinS) is no bound.
"""

import dataclasses
import fractions
import functools
import math
from collections.abc import Sequence

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import worst_participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeAggregation:
    """A DP-FTRL run, as far as its privacy depends on it.

    Attributes:
        noise_multiplier: z, the noise's standard deviation over the clip norm.
        num_rounds: Rounds T, at least 1.
        min_separation: MinS, rounds strictly between two participations of a
            client, 0 to num_rounds - 1.
        max_participation: MaxP, rounds a client takes part in at most; None for
            what MinS allows, ceil(num_rounds / (min_separation + 1)).
        restart_rounds: Rounds (from 0, increasing) after which a new tree starts.

    Raises:
        ValueError: A value is outside its range, or MaxP is impossible under MinS.
    """

    noise_multiplier: float
    num_rounds: int
    min_separation: int = 0
    max_participation: int | None = None
    restart_rounds: tuple[int, ...] = ()

    def __post_init__(self):
        checks.positive(noise_multiplier=self.noise_multiplier)
        limit = largest_participation(self.num_rounds, self.min_separation)
        if self.max_participation is None:
            object.__setattr__(self, "max_participation", limit)
        checks.integer(
            max_participation=self.max_participation,
            least=1,
            most=limit,
            why=f"ceil(num_rounds / (min_separation + 1)) for num_rounds = "
            f"{self.num_rounds}, min_separation = {self.min_separation}",
        )
        object.__setattr__(self, "restart_rounds", tuple(self.restart_rounds))
        tree_lengths(self.num_rounds, self.restart_rounds)

    @property
    def tree_lengths(self) -> tuple[int, ...]:
        """Rounds of each tree."""
        return tree_lengths(self.num_rounds, self.restart_rounds)

    @functools.cached_property
    def square_sum(self) -> int:
        """S2, the squared sensitivity for clip norm 1 in the worst case."""
        assert self.max_participation is not None
        return worst_participation.square_sum(
            self.tree_lengths, self.max_participation, self.min_separation
        )

    @property
    def rho(self) -> float:
        """The zCDP of the run, for zero-out adjacency."""
        return zcdp(self.square_sum, self.noise_multiplier)


def largest_participation(num_rounds: int, min_separation: int) -> int:
    """Computes the largest number of a client's participations under MinS alone.

    Args:
        num_rounds: Rounds T, at least 1.
        min_separation: MinS, rounds strictly between participations; 0 to T - 1.

    Returns:
        ceil(T / (MinS + 1)).

    Raises:
        ValueError: An argument is outside its range.
    """
    rounds = checks.integer(num_rounds=num_rounds, least=1)
    separation = checks.integer(
        min_separation=min_separation, least=0, most=rounds - 1, why="below num_rounds"
    )
    return -(-rounds // (separation + 1))


def restart_schedule(
    num_rounds: int, first: int = 128, period: int = 1024
) -> tuple[int, ...]:
    """Lists the restart rounds of Algorithm 1 of Xu et al. 2023.

    Args:
        num_rounds: Rounds T, at least 1.
        first: First restart round, at least 0.
        period: Rounds between restarts, at least 1.

    Returns:
        first + i period, for those rounds that are followed by another.

    Raises:
        ValueError: An argument is outside its range.
    """
    rounds = checks.integer(num_rounds=num_rounds, least=1)
    first = checks.integer(first=first, least=0)
    period = checks.integer(period=period, least=1)
    return tuple(range(first, rounds - 1, period))


def tree_lengths(num_rounds: int, restart_rounds: Sequence[int]) -> tuple[int, ...]:
    """Computes the rounds of each tree.

    Args:
        num_rounds: Rounds T, at least 1.
        restart_rounds: Rounds (from 0, strictly increasing, below T - 1) after which
            a new tree starts.

    Returns:
        The lengths, which add up to T.

    Raises:
        ValueError: An argument is outside its range.
    """
    rounds = checks.integer(num_rounds=num_rounds, least=1)
    starts = [0]
    for restart in restart_rounds:
        restart = checks.integer(restart_rounds=restart, least=0, most=rounds - 2)
        checks.holds(
            restart + 1 > starts[-1],
            "strictly increasing",
            restart_rounds=restart_rounds,
        )
        starts.append(restart + 1)
    return tuple(np.diff([*starts, rounds]).tolist())


def zcdp(square_sum: int, noise_multiplier: float) -> float:
    """Computes rho = S2 / (2 z^2).

    Args:
        square_sum: S2, at least 0.
        noise_multiplier: z, above 0.

    Returns:
        rho, where it is no float64 the next one above; infinite above 1.8e308.

    Raises:
        ValueError: An argument is outside its range.
    """
    square_sum = checks.integer(square_sum=square_sum, least=0)
    noise = checks.positive(noise_multiplier=noise_multiplier)
    return rounding.upwards(square_sum / (2 * fractions.Fraction(noise) ** 2))


def observed_zcdp(
    *,
    noise_multiplier: float,
    clients: np.ndarray,
    rounds: np.ndarray,
    num_rounds: int,
    restart_rounds: Sequence[int] = (),
) -> float:
    """Computes the zCDP of the noise trees for who really took part when.

    It is that of the client with the largest square sum S2: at most what the worst
    case of the same rounds, MinS and MaxP gives, and often less.

    Args:
        noise_multiplier: z, above 0; where noised counts are released beside the
            model deltas, that of both together.
        clients: int [participations], which client.
        rounds: int [participations], in which round, 0 to num_rounds - 1.
        num_rounds: Rounds done, at least 1.
        restart_rounds: Rounds (from 0, increasing) after which a new tree starts;
            those that nothing follows yet make no difference.

    Returns:
        rho, for zero-out of one client; 0 if nobody took part.

    Raises:
        ValueError: An argument is outside its range, a round is not below
            num_rounds, or a client takes part twice in a round.
    """
    last = checks.integer(num_rounds=num_rounds, least=1) - 1
    lengths = tree_lengths(num_rounds, [r for r in restart_rounds if r < last])
    square_sums = observed_square_sums(clients, rounds, lengths)
    return zcdp(int(square_sums.max(initial=0)), noise_multiplier)


def observed_square_sums(
    clients: np.ndarray, rounds: np.ndarray, lengths: Sequence[int]
) -> np.ndarray:
    """Computes S2 of every client from the realised participations.

    Args:
        clients: int [participations], which client.
        rounds: int [participations], in which round, 0 to sum(lengths) - 1.
        lengths: Rounds of each tree, in order.

    Returns:
        int64 [distinct clients], in increasing order of `clients`.

    Raises:
        ValueError: The columns have different lengths, a round is outside the run,
            or a client takes part twice in a round.
    """
    clients, rounds = np.asarray(clients), np.asarray(rounds)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    worst_participation.check_participations(clients, rounds, int(starts[-1]))
    order = np.lexsort((rounds, clients))
    clients, rounds = clients[order], rounds[order].astype(np.int64)
    # Sorted like this, the participations in a node stand side by side.
    owner = np.cumsum(np.concatenate([[0], clients[1:] != clients[:-1]])[: len(order)])
    tree = np.searchsorted(starts, rounds, side="right") - 1
    position = rounds - starts[tree]
    size = np.asarray(lengths, dtype=np.int64)[tree]
    totals = np.zeros(len(order) and int(owner[-1]) + 1, dtype=np.int64)
    for height in range(int(max(lengths)).bit_length()):
        node = position >> height
        complete = (node + 1) << height <= size
        columns = [column[complete] for column in (owner, tree, node)]
        differs = np.zeros(len(columns[0]), dtype=bool)
        differs[:1] = True
        for column in columns:
            differs[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(differs)
        counts = np.diff(np.append(first, len(differs)))
        if height == 0 and counts.max(initial=0) > 1:
            twice = first[np.argmax(counts)]
            raise ValueError(
                f"client {clients[twice]} takes part twice in round {rounds[twice]}"
            )
        np.add.at(totals, columns[0][first], counts**2)
    return totals


def largest_error(lengths: Sequence[int]) -> float:
    """Computes the noise's standard deviation on the worst prefix sum.

    Args:
        lengths: Rounds of each tree, in order.

    Returns:
        That of Honaker's efficient form, for noise of standard deviation 1 in each
        node: a complete node of 2^h rounds is estimated with the variance
        1 / (2 - 2^-h), and a prefix is a sum of such.
    """
    done = worst = 0.0
    for length in lengths:
        prefixes = np.arange(length + 1)
        variances = np.zeros(length + 1)
        for height in range(int(length).bit_length()):
            variances += (prefixes >> height & 1) / (2 - 0.5**height)
        worst = max(worst, done + float(variances.max()))
        done += float(variances[-1])
    return math.sqrt(worst)
