"""The graph of neighbours who share masks (Bell et al. 2020), and its size.

Each client shares masks and secrets with k neighbours, any t of whom can open its
secrets. The server puts the n clients on a ring in random order and joins each with the
k / 2 next ones on both sides (a Harary graph). At most c clients collude with the
server, and at most d drop out. Three things may go wrong:

* E1: t of a client's neighbours collude, and open its secrets. A client's neighbours
are a uniform k-subset of the others: at most n P(Hypergeometric(n - 1, c, k) >= t). *
E2: the remaining honest clients fall apart into two groups, and the server learns each
group's sum. k / 2 successive clients have to be gone from the ring, in two places:
  n (n - k - 1) / 2 times the probability that k given ones are among c + d, at most.
* E3: fewer than t of a client's neighbours remain, and the sum cannot be opened:
  n P(Hypergeometric(n - 1, d, k) > k - t) at most.

k and t are the smallest for which E1 and E2 each have a probability of 2^-(s + 1) at
most, and E3 of 2^-e, as the authors' own implementation chooses them. If there is no
such k below n - 1, every client has all others as neighbours, and nothing is left to
chance.
"""

import dataclasses
import functools
import math

import numpy as np

from federated_hh.options import checks

# A share is the value of a polynomial at one of as many points.
MOST_NEIGHBOURS = 1 << 16
# Shares of a cohort are floats, such as 0.3, which is a bit less than 3 of 10.
_SLACK = 1e-12


@dataclasses.dataclass(frozen=True)
class Needs:
    """Faults and failures that a masked sum has to withstand.

    Attributes:
        num_clients: n, the cohort size; at least 3.
        most_gone: d, the most clients that may drop out; at least 0.
        most_corrupt: c, the most clients that may collude with the server; at least 0.
        security_bits: s: an honest client's vector is hidden except with probability
            2^-s; at least 1.
        correctness_bits: e: with at most d gone, the sum is found except with
            probability 2^-e; at least 1.

    Raises:
        ValueError: If a value is out of range, or fewer than two honest clients are
            certain to remain.
    """

    num_clients: int
    most_gone: int
    most_corrupt: int
    security_bits: int = 40
    correctness_bits: int = 20

    def __post_init__(self):
        checks.integer(num_clients=self.num_clients, least=3)
        checks.integer(most_gone=self.most_gone, least=0)
        checks.integer(most_corrupt=self.most_corrupt, least=0)
        checks.integer(security_bits=self.security_bits, least=1)
        checks.integer(correctness_bits=self.correctness_bits, least=1)
        if self.honest_left < 2:
            raise ValueError(
                f"num_clients is {self.num_clients}, of whom {self.most_gone} may "
                f"drop out and {self.most_corrupt} may collude with the server; it "
                "has to exceed these together by at least 2, or the sum would be a "
                "single client's"
            )

    @property
    def honest_left(self) -> int:
        """The number of honest clients left in the worst case."""
        return self.num_clients - self.most_gone - self.most_corrupt

    @classmethod
    def of_shares(
        cls, num_clients: int, dropout: float, corrupt: float, **bits: int
    ) -> "Needs":
        """Returns the needs for given shares of a cohort.

        Args:
            num_clients: n.
            dropout: The share of the cohort that may drop out, in [0, 1).
            corrupt: The share of the cohort that may collude, in [0, 1).
            **bits: See the attributes.
        """
        gone, bad = (
            math.floor(share * num_clients + _SLACK) for share in (dropout, corrupt)
        )
        return cls(num_clients, gone, bad, **bits)


@dataclasses.dataclass(frozen=True)
class Graph:
    """The number of a client's neighbours, and of those that open its secrets.

    Attributes:
        needs: Requirements that it was chosen for.
        neighbours: k: even and below n - 1, or n - 1.
        threshold: t, in [2, k].
        log2_insecure: Base-2 logarithm of a bound on the probability of E1 or E2.
        log2_incorrect: Base-2 logarithm of the probability of E3.

    Raises:
        ValueError: If a number of neighbours or the threshold is out of range.
    """

    needs: Needs
    neighbours: int
    threshold: int
    log2_insecure: float = dataclasses.field(init=False)
    log2_incorrect: float = dataclasses.field(init=False)

    def __post_init__(self):
        others = self.needs.num_clients - 1
        most = min(others, MOST_NEIGHBOURS)
        checks.integer(neighbours=self.neighbours, least=2, most=most)
        if self.neighbours < others and self.neighbours % 2:
            raise ValueError(
                f"neighbours is {self.neighbours}; it has to be even, or {others}"
            )
        checks.integer(threshold=self.threshold, least=2, most=self.neighbours)
        n, k, t = self.needs.num_clients, self.neighbours, self.threshold
        opened = _log_tail(n, self.needs.most_corrupt, k, t)
        apart = _log_apart(n, self.needs.most_corrupt + self.needs.most_gone, k)
        lost = _log_tail(n, self.needs.most_gone, k, k - t + 1)
        both = float(np.logaddexp(opened, apart))
        object.__setattr__(self, "log2_insecure", min(0.0, both / math.log(2)))
        object.__setattr__(self, "log2_incorrect", min(0.0, lost / math.log(2)))

    @property
    def is_complete(self) -> bool:
        """Whether every client has all others as neighbours."""
        return self.neighbours == self.needs.num_clients - 1

    @property
    def least_left(self) -> int:
        """The number of clients that have to stay until all inputs are sent."""
        return self.needs.num_clients - self.needs.most_gone

    def ring(self, order: np.ndarray) -> np.ndarray:
        """Returns each client's neighbours: int64 [clients, k], ascending.

        Args:
            order: int64 [clients], the order on the ring: a permutation.
        """
        n, k = self.needs.num_clients, self.neighbours
        if self.is_complete:
            steps = np.arange(1, n)
        else:
            steps = np.concatenate(
                [np.arange(1, k // 2 + 1), -np.arange(1, k // 2 + 1)]
            )
        found = np.empty((n, k), np.int64)
        found[order] = order[(np.arange(n)[:, np.newaxis] + steps) % n]
        found.sort(axis=1)
        return found


@functools.lru_cache(maxsize=64)
def choose(needs: Needs) -> Graph:
    """Returns the graph with the fewest neighbours that meets the needs.

    Raises:
        ValueError: If there is none: too many may drop out or collude.
    """
    n = needs.num_clients
    wanted = -(needs.security_bits + 1) * math.log(2)
    bad = needs.most_corrupt + needs.most_gone
    threshold = 2
    for k in range(2, min(n - 1, MOST_NEIGHBOURS + 1), 2):
        if _log_apart(n, bad, k) > wanted:
            continue
        # It grows with k, as more neighbours may collude.
        while (
            threshold <= k and _log_tail(n, needs.most_corrupt, k, threshold) > wanted
        ):
            threshold += 1
        lost = _log_tail(n, needs.most_gone, k, k - threshold + 1)
        if threshold <= k and lost <= -needs.correctness_bits * math.log(2):
            return Graph(needs, k, threshold)
    # All others: who colludes are fewer than t, and who stays at least t, for certain.
    threshold = max(2, needs.most_corrupt + 1)
    if n - 1 - needs.most_gone < threshold or n - 1 > MOST_NEIGHBOURS:
        raise ValueError(
            f"num_clients is {n:,}, of whom {needs.most_gone:,} may drop out and "
            f"{needs.most_corrupt:,} may collude with the server: no graph both hides "
            "the other clients and can be opened. Lower one of the two, or use a "
            "larger cohort"
        )
    return Graph(needs, n - 1, threshold)


def _log_tail(n: int, bad: int, k: int, least: int) -> float:
    """Returns ln n P(at least so many of k random ones of n - 1 are bad)."""
    from scipy import stats

    if least > min(bad, k):
        return -math.inf
    return math.log(n) + float(stats.hypergeom.logsf(least - 1, n - 1, bad, k))


def _log_apart(n: int, bad: int, k: int) -> float:
    """Returns the logarithm of the bound on E2."""
    from scipy import special

    if k >= n - 1 or k > bad:
        return -math.inf
    places = math.log(n) + math.log(n - k - 1) - math.log(2)
    # The probability that k given ones of n are among those that are bad.
    all_bad = special.gammaln([bad + 1, n - k + 1]).sum()
    return places + float(all_bad - special.gammaln([bad - k + 1, n + 1]).sum())
