"""The noise that a wanted guarantee needs, and its split over sums and counts."""

import math
from collections.abc import Callable

from federated_hh.options import checks
from federated_hh.privacy import conversions, loss_composition
from federated_hh.privacy.shuffle import clones

# A larger epsilon is not a guarantee, at any delta.
LARGEST_EPSILON = 1000.0


def noise_multiplier_of(
    rho_of: Callable[[float], float], epsilon: float, delta: float
) -> float:
    """Finds the smallest noise multiplier for a wanted guarantee, whatever the noise.

    Args:
        rho_of: The zCDP of a noise multiplier, which falls as that grows.
        epsilon: Wanted epsilon, in (0, 1000].
        delta: Wanted delta, in (0, 1).

    Returns:
        z, at most 1e-9 (relative) above the smallest whose zCDP is converted to at
        most `epsilon`. Where the clip norm is estimated too, this is the z of both
        (`delta_noise_multiplier` splits it).

    Raises:
        ValueError: An argument is outside its range.
    """
    epsilon = checks.positive(epsilon=epsilon, most=LARGEST_EPSILON)
    delta = checks.probability(delta=delta)

    def enough(multiplier: float) -> bool:
        return conversions.zcdp_to_epsilon(rho_of(multiplier), delta) <= epsilon

    return _smallest(enough)


def local_epsilon_for(
    epsilon: float,
    delta: float,
    *,
    num_reports: int,
    num_repeats: int = 1,
    largest: float = clones.LARGEST_LOCAL_EPSILON,
) -> float:
    """Finds the largest local epsilon for a wanted central one of LDP TrieHH.

    The sizes of the levels' domains are results of the run, so the bound is one that
    holds whatever they are (Feldman et al. 2021, Theorem 3.1, for every randomizer).
    The statement of the run, which knows them, has a smaller epsilon.

    Args:
        epsilon: Wanted central epsilon for the exchange of one item, above 0.
        delta: Wanted delta, in (0, 1).
        num_reports: Reports of a level, N B; at least 1.
        num_repeats: Repeats with the same users, which are composed; at least 1.
        largest: Local epsilon that is never exceeded, in (0, 100].

    Returns:
        The local epsilon, at most 1e-6 (relative) below the largest one that the
        bound allows; at least epsilon / num_repeats, which needs no amplification.

    Raises:
        ValueError: An argument is outside its range.
    """
    epsilon = checks.positive(epsilon=epsilon, most=LARGEST_EPSILON)
    delta = checks.probability(delta=delta)
    count = checks.integer(num_reports=num_reports, least=1)
    repeats = checks.integer(
        num_repeats=num_repeats, least=1, most=loss_composition.LARGEST_COUNT
    )
    checks.positive(largest=largest, most=clones.LARGEST_LOCAL_EPSILON)

    def enough(local: float) -> bool:
        reports = loss_composition.of_guarantee(local, 0.0, repeats)
        if count > 1:
            alone, pair = reports, clones.ClonePair(local, count, stronger=False)
            # A report among others reveals no more than it does alone.
            reports = loss_composition.Mechanisms(
                lambda at: min(alone.delta_at(at), pair.delta(at)), local, repeats
            )
        return loss_composition.composed_epsilon([reports], delta) <= epsilon

    low = min(epsilon / repeats * (1 - 1e-12), largest)
    if enough(largest):
        return largest
    high = largest
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def _smallest(enough: Callable[[float], bool]) -> float:
    """Returns the smallest value at which a condition holds."""
    high = 1.0
    while not enough(high):
        high *= 2
    while enough(high / 2):
        high /= 2
    low = high / 2
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def delta_noise_multiplier(noise_multiplier: float, count_stddev: float) -> float:
    """Computes the noise for model deltas when the clip norm is estimated too.

    Xu et al. 2023, Theorem 1 (Andrew et al. 2021): the pair of a sum of deltas with
    z_delta and a sum of clipped bits with sigma_b costs as much as one sum with z.

    Args:
        noise_multiplier: z, the noise multiplier of the accounting, above 0.
        count_stddev: sigma_b, the noise's standard deviation on the count of
            unclipped clients (the bits are centred, so they have sensitivity 1/2);
            above z / 2.

    Returns:
        z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2), above z; rounded upwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    z = checks.positive(noise_multiplier=noise_multiplier)
    sigma = checks.positive(count_stddev=count_stddev)
    # Compared before it is squared, as the square may be no float64.
    if z >= 2 * sigma:
        raise ValueError(
            f"count_stddev is {sigma:g}; it has to be above noise_multiplier / 2 = "
            f"{z / 2:g}: the bits alone would cost more than noise_multiplier allows"
        )
    return z / math.sqrt(1 - (z / (2 * sigma)) ** 2) * (1 + 2**-50)
