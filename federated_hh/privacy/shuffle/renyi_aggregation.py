"""Aggregated one-hot encodings, by Renyi differential privacy.

Source: McMillan et al. 2022 ("Private Federated Statistics in an Interactive
Setting"), Theorem C.3: replacing one user's item changes two coordinates of the sum,
one bit of each, independently, so that the Renyi divergences of the two add up.

What is left is a bound for one coordinate, and what is proved here holds for both
encodings. Whatever the items of the others, each of their bits is a fair coin with
probability 2 / (e^epsilon_0 + 1), and else something that does not depend on that coin:
the truth, a zero, or a coin of its own. With C ~ Binomial(n - 1, 2 / (e^epsilon_0 + 1))
such coins, and all else known to the observer, the sum of a coordinate is, up to a
shift, X ~ Binomial(C, 1/2) plus the victim's bit. That bit is 1 with probability
e^epsilon_0 / (e^epsilon_0 + 1) (symmetric) or 1/2 (asymmetric) for the true item, and
1 / (e^epsilon_0 + 1) for another one.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import binomial_grid, conversions
from federated_hh.privacy.shuffle import clones

# Counts are summed whole up to here.
_WHOLE_RANGE = 4000

_FAR_BLOCKS = 24
# Of counts, where that makes a bound tighter only.
_MOST_BLOCKS = 40_000


def symmetric_one_hot_rho(
    order: float, local_epsilon: float, num_reports: int
) -> float:
    """Bounds the Renyi divergence of the sums of symmetric one-hot encodings.

    Args:
        order: Renyi order alpha, above 1 and at most 1e8.
        local_epsilon: Local epsilon for deletion (the one of McMillan et al.,
            Algorithm 3); for replacement it is twice that. In (0, 100].
        num_reports: Reports n, the victim's included; at least 2.

    Returns:
        2 rho(alpha): an upper bound for replacement of one user's item, both ways.

    Raises:
        ValueError: An argument is outside its range.
    """
    _check(order, local_epsilon, num_reports)
    honest = 1 / (1 + math.exp(-local_epsilon))
    # Exchanging the laws and counting zeros gives the same divergence.
    return 2 * _coordinate(
        order, local_epsilon, num_reports, (honest, 1 - honest), local_epsilon
    )


def asymmetric_one_hot_rho(
    order: float, local_epsilon: float, num_reports: int
) -> float:
    """Bounds the Renyi divergence of the sums of asymmetric one-hot encodings.

    Args:
        order: Renyi order alpha, above 1 and at most 1e8.
        local_epsilon: Local epsilon for replacement (McMillan et al., Algorithm 1), in
            (0, 100].
        num_reports: Reports n, the victim's included; at least 2.

    Returns:
        An upper bound for replacement of one user's item, both ways: the coordinate of
        the item that is taken away, and that of the one that comes.

    Raises:
        ValueError: An argument is outside its range.
    """
    _check(order, local_epsilon, num_reports)
    honest = 1 / (1 + math.exp(-local_epsilon))
    # Of the item that comes zeros are counted, so that both ratios grow with u. The
    # laws of one bit are within a factor (e^epsilon_0 + 1) / 2 of each other.
    return sum(
        _coordinate(order, local_epsilon, num_reports, bits, local_epsilon)
        for bits in ((0.5, 1 - honest), (honest, 0.5))
    )


def symmetric_one_hot_epsilon(
    local_epsilon: float, num_reports: int, delta: float
) -> tuple[float, float]:
    """Computes epsilon of aggregated symmetric one-hot encodings by Theorem C.3.

    Args:
        local_epsilon: Local epsilon for deletion, in (0, 50].
        num_reports: Reports n, the victim's included; at least 2.
        delta: In (0, 1).

    Returns:
        (epsilon, order): an upper bound for replacement, by the conversion of
        Canonne, Kamath, Steinke 2020 at the best Renyi order found.

    Raises:
        ValueError: An argument is outside its range.
    """
    return _smallest_epsilon(
        lambda order: symmetric_one_hot_rho(order, local_epsilon, num_reports),
        clones.ClonePair(2 * local_epsilon, num_reports, stronger=True),
        delta,
    )


def asymmetric_one_hot_epsilon(
    local_epsilon: float, num_reports: int, delta: float
) -> tuple[float, float]:
    """Computes epsilon of aggregated asymmetric one-hot encodings, by the same route.

    Args:
        local_epsilon: Local epsilon for replacement, in (0, 100].
        num_reports: Reports n, the victim's included; at least 2.
        delta: In (0, 1).

    Returns:
        (epsilon, order), as of `symmetric_one_hot_epsilon`.

    Raises:
        ValueError: An argument is outside its range.
    """
    return _smallest_epsilon(
        lambda order: asymmetric_one_hot_rho(order, local_epsilon, num_reports),
        clones.ClonePair(local_epsilon, num_reports, stronger=True),
        delta,
    )


def _smallest_epsilon(
    rho_at: Callable[[float], float], near: clones.ClonePair, delta: float
) -> tuple[float, float]:
    """Returns epsilon and its order, sought around what a bound at hand says."""
    from scipy import optimize

    delta = checks.probability(delta=delta)

    def epsilon_at(log_step: float) -> float:
        order = 1 + math.exp(log_step)
        return conversions.renyi_to_epsilon(rho_at(order), order, delta)

    # The best order is near ln(1/delta) / epsilon, and the cost of an order grows with
    # it.
    typical = -math.log(delta) / max(near.epsilon(delta), 1e-12)
    # Where the best order is out of reach, another one gives a bound that is larger.
    highest = min(max(20 * typical, 1.0), 1e7)
    lowest = min(max(typical / 50, 1e-2), highest / 10)
    found = optimize.minimize_scalar(
        epsilon_at,
        bounds=(math.log(lowest), math.log(highest)),
        method="bounded",
        options={"xatol": 0.03, "maxiter": 20},
    )
    return max(0.0, float(found.fun)), 1 + math.exp(float(found.x))


def _check(order: float, local_epsilon: float, num_reports: int) -> None:
    checks.holds(1 < order <= 100000000.0, "above 1 and at most 1e8", order=order)
    checks.positive(local_epsilon=local_epsilon, most=clones.LARGEST_LOCAL_EPSILON)
    checks.integer(num_reports=num_reports, least=2)


def _coordinate(
    order: float,
    local_epsilon: float,
    num_reports: int,
    bits: tuple[float, float],
    largest_loss: float,
) -> float:
    """Bounds the Renyi divergence of one coordinate of the sum.

    Args:
        order: Renyi order.
        local_epsilon: Local epsilon, which gives the share of fair coins.
        num_reports: Reports n.
        bits: Probabilities that the victim's bit is 1 in the two worlds; the second is
            smaller.
        largest_loss: No ratio of the laws of a bit is above e to this.
    """
    from scipy import special

    inverse = math.exp(-local_epsilon)
    coin = 2 * inverse / (1 + inverse)
    # A block that is 1 part in 3000 of the count costs as much of rho.
    blocks = math.ceil(min(1024, max(16, 3e4 / math.sqrt(num_reports * coin + 1))))
    counts, masses = binomial_grid.lower_ends(num_reports - 1, coin, blocks)
    log_terms = [
        math.log(mass) + _log_moment(int(count), order, bits)
        for count, mass in zip(counts[1:], masses[1:], strict=True)
        if mass > 0
    ]
    # Few coins are unlikely, but a high order sees them: the counts below the band
    # get blocks of their own, with Chernoff's bound for their mass.
    edges = np.linspace(0, counts[1], _FAR_BLOCKS + 1).astype(int)
    for low, high in itertools.pairwise(edges):
        if high > low:
            log_tail = _log_tail(int(high) - 1, num_reports - 1, coin)
            # No moment is above e^((alpha - 1) loss).
            most = (order - 1) * largest_loss
            if log_tail + most > -50:
                most = _log_moment(int(low), order, bits)
            log_terms.append(log_tail + most)
    return max(0.0, float(special.logsumexp(log_terms))) / (order - 1)


def _log_moment(coins: int, order: float, bits: tuple[float, float]) -> float:
    """Bounds ln E_Q (P/Q)^alpha for one coordinate with a known number of coins.

    With k = coins + 1, X ~ Binomial(k, 1/2) and u = X / k, the law of the sum with a
    bit that is 1 with probability b is r(u) = 2 (b u + (1 - b) (1 - u)) times that of
    X. The moment falls with the number of coins.
    """
    from scipy import special, stats

    trials = coins + 1
    contrast = max(abs(2 * bit - 1) for bit in bits)
    reach = trials / 2
    if trials > _WHOLE_RANGE:
        reach = min(reach, 2 * order * contrast + 6 * math.sqrt(trials))
    lowest = max(0, math.floor(trials / 2 - reach))
    # The ratio of the two laws grows with u, and the mass falls away from the mean:
    # a block of counts is bounded by its ends, which changes the logarithm of a term
    # by 0.006 at most, and that of a moment near 1, as of a low order, by a fiftieth
    # where this does not make too many blocks.
    near_one = max(0.02 * (order - 1) * contrast, 2 * reach / _MOST_BLOCKS)
    width = 5e-4 * trials / (order * contrast)
    width = max(1, math.floor(min(width, near_one)))
    first_counts = np.arange(lowest, trials - lowest + 1, width)
    last_counts = np.minimum(first_counts + width - 1, trials - lowest)
    likeliest = np.clip(trials // 2, first_counts, last_counts)
    log_mass = stats.binom.logpmf(likeliest, trials, 0.5) + math.log(width)
    u = last_counts / trials
    first, second = (bit * u + (1 - bit) * (1 - u) for bit in bits)
    terms = (
        log_mass + math.log(2) + order * np.log(first) + (1 - order) * np.log(second)
    )
    if lowest > 0:
        # Layers of the distance t from the mean, each with Hoeffding's bound for its
        # mass and the largest ratio of the two laws in it.
        layers = math.ceil(math.log(trials / 2 / reach) / math.log(1.02)) + 1
        t = reach * 1.02 ** np.arange(layers)
        share = np.minimum(1.02 * t / trials, 0.5) * contrast
        log_ratio = np.log((0.5 + share) / (0.5 - share))
        outside = math.log(4) - 2 * t**2 / trials + order * log_ratio
        terms = np.append(terms, outside)
    return float(special.logsumexp(terms))


def _log_tail(count: int, trials: int, probability: float) -> float:
    """Bounds ln P(B <= count), B ~ Binomial, below the mean (Chernoff)."""
    share = count / trials
    if share == 0:
        return trials * math.log1p(-probability)
    return -trials * (
        share * math.log(share / probability)
        + (1 - share) * math.log((1 - share) / (1 - probability))
    )
