"""The privacy of LDP TrieHH for an emptied client: all its items become "no item".

A client's B items are distinct. Emptying it raises the total of "no item" by at most B
and lowers the total of each item by at most one. `docs/ldp_triehh_privacy.md` proves
that a level's totals tell an observer no more than B + 1 independent counts. The count
for "no item" is Poisson(m) with or without Binomial(B, 1 - gamma) more; the count for
each item is Poisson(m') with or without Bernoulli(1 - gamma) more.
"""

import math
from collections.abc import Sequence

import numpy as np

from federated_hh.privacy import loss_composition
from federated_hh.privacy.shuffle import blanket

# Share of delta for each event that the counts do not cover.
_SHARE = 1e-4

# Half width of the tabulated Poisson laws: standard deviations plus a constant.
_DEVIATIONS = 12.0
_MARGIN = 60

# Larger privacy losses are not used: their exponential would overflow.
_LARGEST_LOSS = 700.0


class ShiftedCount:
    """A Poisson count with or without an independent count added to it.

    Attributes:
        mean: The mean of the Poisson count.
        largest: The largest epsilon at which `delta` still falls.
    """

    def __init__(self, mean: float, added: np.ndarray, uncovered: float = 0.0):
        """Tabulates both laws.

        Args:
            mean: Mean of the Poisson count, above 0.
            added: float64 [counts], the law of the added count from 0 on, log-concave
                and of mass 1 - `uncovered`.
            uncovered: Probability that the observer learns that a count was added.
        """
        from scipy import stats

        self.mean = mean
        reach = _DEVIATIONS * math.sqrt(mean) + _MARGIN
        lowest, highest = max(0, math.floor(mean - reach)), math.ceil(mean + reach)
        base = stats.poisson.pmf(np.arange(lowest, highest + 1), mean)
        outside = stats.poisson.cdf(lowest - 1, mean) + stats.poisson.sf(highest, mean)
        self._uncovered = uncovered + float(outside)
        # Relative error of SciPy's pmf: it takes the exponential of large terms.
        self._error = 1e-14 * (1 + highest * math.log(highest))
        more = np.convolve(base, added)
        base = np.pad(base, (0, len(added) - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            # The ratio rises with the count because both laws are log-concave.
            self._losses = np.maximum.accumulate(np.log(more) - np.log(base))
        finite = np.abs(self._losses[np.isfinite(self._losses)])
        self.largest = min(float(finite.max(initial=1e-9)), _LARGEST_LOSS)
        # float64 [counts + 1]: mass below each count, and from each count on.
        self._below = [np.append(0.0, np.cumsum(law)) for law in (base, more)]
        self._above = [
            np.append(np.cumsum(law[::-1])[::-1], 0.0) for law in (base, more)
        ]

    def delta(self, epsilon: float) -> float:
        """Computes an upper bound of delta at an epsilon, for both directions."""
        gain = math.exp(epsilon) * (1 - self._error)
        scale = 1 + self._error
        first = int(np.searchsorted(self._losses, epsilon, side="right"))
        end = int(np.searchsorted(self._losses, -epsilon, side="left"))
        rise = scale * self._above[1][first] - gain * self._above[0][first]
        fall = scale * self._below[0][end] - gain * self._below[1][end]
        return min(1.0, self._uncovered + max(float(rise), float(fall), 0.0))


def counts_of_level(
    local_epsilon: float,
    domain_size: int,
    num_reports: int,
    contribution_bound: int,
    failure: float,
) -> tuple[ShiftedCount, ShiftedCount] | None:
    """Returns the counts that tell at least as much as a level's totals.

    Args:
        local_epsilon: Local epsilon of Subset Selection, in (0, 100].
        domain_size: Items s, "no item" included; at least 2.
        num_reports: Number of reports n of the level.
        contribution_bound: B, below n.
        failure: Largest probability of each of the two events without a bound.

    Returns:
        (the count for "no item", the count for each of B items); None if a count
        for an item has a mean below 1.
    """
    from scipy import special, stats

    s, bound = domain_size, contribution_bound
    d = blanket.best_subset_size(local_epsilon, s)
    gamma = s / (s + d * math.expm1(local_epsilon))
    # The two events: fewer blanket reports than this, and more Poisson reports.
    least = int(stats.binom.ppf(failure, num_reports - bound, gamma))
    mean = float(special.gammaincinv(least + 1, failure)) * d / s * (1 - 1e-9)
    # The number of the client's other items in a report that holds one of them.
    others = min(bound, s - 1) - 1
    law = stats.hypergeom.pmf(np.arange(others + 1), s - 1, others, d - 1)
    tails = np.append(np.cumsum(law[::-1])[::-1], 0.0) * (1 + 1e-6)
    held = int(np.argmax(bound * (1 - gamma) * tails[1:] <= failure)) + 1
    missing = (1 - gamma) * float(tails[held])
    of_item = mean * (1 - float(tails[held])) / held
    if of_item < 1:
        return None
    counts = np.arange(bound + 1)
    return (
        ShiftedCount(mean, stats.binom.pmf(counts, bound, 1 - gamma)),
        ShiftedCount(of_item, np.array([gamma, 1 - gamma - missing]), missing),
    )


def epsilon(
    local_epsilon: float,
    domain_sizes: Sequence[int],
    *,
    cohort_size: int,
    contribution_bound: int,
    num_repeats: int,
    delta: float,
) -> float:
    """Computes the epsilon for an emptied client, for both directions.

    Args:
        local_epsilon: Local epsilon of Subset Selection, in (0, 100].
        domain_sizes: Items s of each level, "no item" included; at least one level.
        cohort_size: Clients N of a level, at least 2.
        contribution_bound: B, at least 1.
        num_repeats: Number of repeats; the client is in one level of each.
        delta: Wanted delta, in (0, 1).

    Returns:
        An upper bound; infinity if there are too few reports for one.
    """
    failure = _SHARE * delta / num_repeats
    none, item = [], []
    for size in sorted(set(domain_sizes)):
        found = counts_of_level(
            local_epsilon,
            size,
            cohort_size * contribution_bound,
            contribution_bound,
            failure,
        )
        if found is None:
            return math.inf
        none.append(found[0])
        item.append(found[1])
    mechanisms = [
        _worst_of(none, num_repeats),
        _worst_of(item, num_repeats * contribution_bound),
    ]
    left = delta - 2 * num_repeats * failure
    if sum(each.count * each.delta_at(each.largest) for each in mechanisms) > left / 2:
        return math.inf
    return loss_composition.composed_epsilon(mechanisms, left)


def _worst_of(
    counts: Sequence[ShiftedCount], number: int
) -> loss_composition.Mechanisms:
    """Returns mechanisms that may each be any of the counts."""
    return loss_composition.Mechanisms(
        lambda at: max(count.delta(at) for count in counts),
        max(count.largest for count in counts),
        number,
    )
