"""From one privacy definition to another, and from one client to several.

Every function states its assumptions about the mechanism: a number in zCDP does not say
which mechanism it came from, and the tightest conversion holds for Gaussian ones only.
"""

import enum
import fractions
import math

from federated_hh.options import checks
from federated_hh.privacy import loss_composition, rounding

# Below this mean the two terms of a Gaussian's delta are too much alike to subtract.
_SMALL_MEAN = 1e-3


class ZcdpConversion(enum.Enum):
    """Ways from zCDP to (epsilon, delta)."""

    GAUSSIAN = "privacy loss distribution of one Gaussian mechanism"
    RENYI = "Renyi DP of all orders, Canonne, Kamath, Steinke 2020"
    BUN_STEINKE = "Bun and Steinke 2016, Proposition 1.3"


def zcdp_to_epsilon(
    rho: float, delta: float, conversion: ZcdpConversion = ZcdpConversion.GAUSSIAN
) -> float:
    """Converts zCDP to epsilon at a delta.

    Args:
        rho: zCDP, above 0.
        delta: In (0, 1).
        conversion: GAUSSIAN is exact for Gaussian mechanisms and their adaptive
            compositions (trees of Gaussian noise too), whose privacy loss is that of
            one Gaussian of noise multiplier 1 / sqrt(2 rho); it is not a bound for
            other mechanisms. The other two hold for every rho-zCDP mechanism.

    Returns:
        epsilon, rounded upwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    rho = checks.positive(rho=rho)
    delta = checks.probability(delta=delta)
    log_inverse = -math.log(delta)
    simple = rho + 2 * math.sqrt(rho * log_inverse)
    if conversion is ZcdpConversion.BUN_STEINKE:
        return simple * (1 + 1e-15)
    if conversion is ZcdpConversion.RENYI:
        return _best_renyi_order(rho, delta)
    return loss_composition.smallest_epsilon(
        lambda epsilon: gaussian_delta(rho, epsilon), delta, simple, guess=simple
    )


def gaussian_delta(rho: float, epsilon: float) -> float:
    """Computes delta of one Gaussian mechanism (Balle and Wang 2018).

    Args:
        rho: Its zCDP, 1 / (2 z^2) for noise multiplier z; above 0.
        epsilon: Nonnegative.

    Returns:
        Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) with m = sqrt(2 rho),
        rounded upwards; tight to 1e-9 (relative) unless rho is below 1e-12.

    Raises:
        ValueError: An argument is outside its range.
    """
    from scipy import special

    rho = checks.positive(rho=rho)
    epsilon = checks.not_negative(epsilon=epsilon)
    mean = math.sqrt(2 * rho)
    log_first = float(special.log_ndtr(mean / 2 - epsilon / mean))
    log_second = float(special.log_ndtr(-mean / 2 - epsilon / mean))
    # Of the arguments, whose errors the derivative of log_ndtr makes larger, and of
    # SciPy's function (16 units below 0 and 100 above, by comparison).
    reach = mean / 2 + epsilon / mean
    error = rounding.UNIT * (
        16 * reach * (reach + 1) + 128 * (abs(log_first) + abs(log_second))
    )
    gap = min(0.0, epsilon * (1 + 2 * rounding.UNIT) + log_second - log_first - error)
    delta = -math.exp(log_first + error) * math.expm1(gap)
    if mean < _SMALL_MEAN:
        delta = min(delta, _delta_of_small_mean(mean, epsilon))
    return min(1.0, delta)


def _delta_of_small_mean(mean: float, epsilon: float) -> float:
    """Bounds delta of a Gaussian mechanism whose means are near each other.

    With Mills' ratio R, delta is phi(a) (R(a) - R(a + m)), a = epsilon / m - m / 2; R
    is convex, so at most m phi(a) (1 - a R(a)), and 1 - a R(a) at most 1 / (1 + a^2).
    """
    from scipy import special

    a = epsilon / mean - mean / 2
    ratio = math.sqrt(math.pi / 2) * float(special.erfcx(a / math.sqrt(2)))
    slope = 1 - a * ratio + 32 * rounding.UNIT
    if a > 0:
        slope = min(slope, 1 / (1 + a * a))
    error = rounding.UNIT * (16 * a * a + 16)
    density = math.exp(-a * a / 2 + error) / math.sqrt(2 * math.pi)
    return mean * density * slope * (1 + 16 * rounding.UNIT)


def renyi_to_epsilon(rho: float, order: float, delta: float) -> float:
    """Converts one Renyi guarantee (Canonne, Kamath, Steinke 2020, Proposition 12).

    Args:
        rho: Renyi divergence of the given order, at least 0.
        order: Renyi order alpha, above 1.
        delta: In (0, 1).

    Returns:
        rho + ln(1 - 1/alpha) - ln(alpha delta) / (alpha - 1), rounded upwards; may
        be below 0, where 0 is enough.
    """
    terms = (
        rho,
        math.log1p(-1 / order),
        -(math.log(order) + math.log(delta)) / (order - 1),
    )
    return math.fsum(terms) + 8 * rounding.UNIT * math.fsum(map(abs, terms))


def group_zcdp(rho: float, group_size: int) -> float:
    """Computes the zCDP of a group, such as a user's several devices.

    Args:
        rho: zCDP of one member, at least 0.
        group_size: Members k, at least 1.

    Returns:
        k^2 rho (Bun and Steinke 2016, Proposition 1.9), rounded upwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    rho = checks.not_negative(rho=rho)
    size = checks.integer(group_size=group_size, least=1)
    return rounding.upwards(fractions.Fraction(rho) * size**2)


def group_privacy(epsilon: float, delta: float, group_size: int) -> tuple[float, float]:
    """Computes the (epsilon, delta) of a group.

    Args:
        epsilon: The epsilon of one member, at least 0.
        delta: The delta of one member, in (0, 1).
        group_size: Members k, at least 1.

    Returns:
        (k epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))), rounded upwards
        (Vadhan 2017, Lemma 2.2).

    Raises:
        ValueError: An argument is outside its range, or the group's delta is 1 or
            more, which would say nothing.
    """
    epsilon = checks.not_negative(epsilon=epsilon)
    delta = checks.probability(delta=delta)
    size = checks.integer(group_size=group_size, least=1)
    log_sum = math.log(size) if epsilon == 0 else _log_geometric(epsilon, size)
    log_delta = math.log(delta) + log_sum
    # Of the logarithms, and of the sum of powers.
    log_delta += 16 * rounding.UNIT * (abs(math.log(delta)) + log_sum + 1)
    if log_delta >= 0:
        raise ValueError(
            f"group_size = {size} is too large for epsilon = {epsilon:g} and delta = "
            f"{delta:g}: the group's delta would be 1 or more"
        )
    return (
        rounding.upwards(size * fractions.Fraction(epsilon)),
        math.exp(log_delta) * (1 + 4 * rounding.UNIT),
    )


def _best_renyi_order(rho: float, delta: float) -> float:
    """Minimizes the converted epsilon over the order; every order gives a bound."""
    from scipy import optimize

    def epsilon_at(log_step: float) -> float:
        order = 1 + math.exp(log_step)
        return renyi_to_epsilon(rho * order, order, delta)

    found = optimize.minimize_scalar(
        epsilon_at,
        bounds=(math.log(1e-3), math.log(1e6)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return max(0.0, float(found.fun)) * (1 + 1e-14)


def _log_geometric(epsilon: float, size: int) -> float:
    """Computes ln(1 + e^epsilon + ... + e^((size - 1) epsilon))."""
    if size * epsilon > 700:
        # 1 / (1 - e^-epsilon) times the largest term is more than the sum.
        return (size - 1) * epsilon - math.log(-math.expm1(-epsilon))
    return math.log(math.expm1(size * epsilon) / math.expm1(epsilon))
