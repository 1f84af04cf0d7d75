"""Amplification by shuffling through clones, as an exact sum.

A report of an epsilon_0-LDP randomizer that is not the victim's own is, with some
probability, a *clone* of one of the two reports that the victim may have sent. With
C clones among the other reports, A ~ Binomial(C, 1/2) of them of the first kind, and
D ~ Bernoulli(e^epsilon_0 / (e^epsilon_0 + 1)), the shuffled reports of two neighbouring
data sets are a function of `(A + D, C - A + 1 - D)` and `(A + 1 - D, C - A + D)`, so
that the hockey-stick divergence of this pair bounds delta.

* Feldman, McMillan, Talwar 2021 ("Hiding among the clones", Theorem 3.1): for every
  epsilon_0-LDP randomizer, C ~ Binomial(n - 1, e^-epsilon_0).
* Feldman, McMillan, Talwar 2022 ("Stronger privacy amplification by shuffling",
  Theorem 3.2): C ~ Binomial(n - 1, 2 / (e^epsilon_0 + 1)). By the paper's erratum this
  is not so for every randomizer, but where the two largest probabilities of an output
  over the inputs add up to at most e^epsilon_0 + 1 times the smallest.

Adjacency is replacement: one report's input is exchanged for another input.
"""

import math

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import binomial_grid, loss_composition

# Above this local epsilon a report tells all, for every purpose.
LARGEST_LOCAL_EPSILON = 100.0

_MAX_BLOCKS = 4096


class ClonePair:
    """The pair of laws that dominates the shuffled reports.

    Attributes:
        local_epsilon: Local epsilon of the randomizer.
        num_reports: Reports n that are shuffled, the victim's included.
    """

    def __init__(self, local_epsilon: float, num_reports: int, *, stronger: bool):
        """Prepares the law of the number of clones.

        Args:
            local_epsilon: Local epsilon of the randomizer for replacement, in
                (0, 100].
            num_reports: Reports n, the victim's included; at least 2.
            stronger: False for the 2021 law of clones, which holds for every
                randomizer; True for the 2022 one, which needs the condition above.

        Raises:
            ValueError: An argument is outside its range.
        """
        self.local_epsilon = checks.positive(
            local_epsilon=local_epsilon, most=LARGEST_LOCAL_EPSILON
        )
        self.num_reports = checks.integer(num_reports=num_reports, least=2)
        inverse = math.exp(-self.local_epsilon)
        probability = 2 * inverse / (1 + inverse) if stronger else inverse
        self._clones, self._masses = binomial_grid.lower_ends(
            self.num_reports - 1, probability, _MAX_BLOCKS
        )
        self._error = binomial_grid.relative_error(self.num_reports)

    def delta(self, epsilon: float) -> float:
        """Computes the hockey-stick divergence of the pair.

        Given C = c, the likelihood ratio grows with the first count x, and exceeds
        e^epsilon from x = t on, so that the divergence is
        `p (e^epsilon - e^-epsilon_0) b(t - 1) - (e^epsilon - 1) P(B >= t - 1)` with
        B ~ Binomial(c, 1/2), its mass function b, and p = P(D = 1). It falls with c
        (the pair with one clone more is a post-processing: add a fair coin), which
        is why blocks of c may be represented by their lower ends.

        Args:
            epsilon: Nonnegative.

        Returns:
            An upper bound of delta, tight to about 1e-6 (relative).
        """
        epsilon = checks.not_negative(epsilon=epsilon)
        if epsilon >= self.local_epsilon:
            return 0.0
        value = given_clones(
            self._clones, self.local_epsilon, epsilon, relative_error=self._error
        )
        return min(1.0, float(np.dot(self._masses, value)))

    def epsilon(self, delta: float) -> float:
        """Computes the smallest epsilon for a delta.

        Args:
            delta: In (0, 1).

        Returns:
            An upper bound of the central epsilon, at most the local one (shuffling
            is a post-processing of the reports).

        Raises:
            ValueError: delta is outside its range.
        """
        delta = checks.probability(delta=delta)
        return loss_composition.smallest_epsilon(self.delta, delta, self.local_epsilon)


def given_clones(
    clone_counts: np.ndarray,
    local_epsilon: float,
    epsilon: float,
    relative_error: float = 1e-10,
) -> np.ndarray:
    """Computes the hockey-stick divergence of the pair for known numbers of clones.

    Args:
        clone_counts: int or float [counts], the number of clones c, at least 0.
        local_epsilon: Local epsilon for replacement, in (0, 100].
        epsilon: Nonnegative and below local_epsilon.
        relative_error: Largest error of the binomial functions; twice that is
            added on the safe side.

    Returns:
        float64 [counts], non-increasing in c.
    """
    honest = 1 / (1 + math.exp(-local_epsilon))
    # t - 1 for t = floor((c + 1) share) + 1, the first count above the ratio.
    share = 0.5 + 0.5 * math.tanh(epsilon / 2) / math.tanh(local_epsilon / 2)
    before = np.floor((clone_counts + 1) * share)
    gain = honest * (math.expm1(epsilon) - math.expm1(-local_epsilon))
    point, tail = binomial_grid.fair_coins(before, clone_counts)
    positive = gain * point
    negative = math.expm1(epsilon) * (point + tail)
    return np.maximum(positive - negative + 2 * relative_error * positive, 0.0)
