"""Epsilon of the integer noise that is drawn, from that of the Gaussian it is made for.

The drawn noise differs slightly from a rounded Gaussian, which is added here:
docs/integer_noise.md has the proof.
"""

import dataclasses
import fractions
import math
from collections.abc import Callable

from federated_hh.privacy import conversions, rounding

# Of the nodes' noise: fewer than twice as many nodes as rounds, each of at most 2^31
# values and a count (`update_noise`).
_LOG_VALUES_PER_ROUND = 32
_LOG_FACTOR = -96
_LOG_PROBABILITY = -140
# Beyond this exp overflows, and far more than a delta is left out.
_LARGEST_EXPONENT = 700.0


@dataclasses.dataclass(frozen=True)
class DrawnEpsilon:
    """The epsilon of the drawn noise.

    Attributes:
        epsilon: Epsilon at the requested delta, rounded upwards. Where it is not
            proved: that of the Gaussian.
        is_proved: Whether the noise that is drawn has it. It has where what is left out
            of the Gaussian's guarantee takes less than half of delta.
    """

    epsilon: float
    is_proved: bool


def zcdp_to_epsilon(rho: float, delta: float, num_rounds: int) -> DrawnEpsilon:
    """Converts the Gaussian's zCDP to epsilon of the noise that is drawn for it.

    Args:
        rho: zCDP of the continuous Gaussian noise, above 0.
        delta: In (0, 1).
        num_rounds: Rounds that noise was added in, at least 1.

    Raises:
        ValueError: If `rho` or `delta` is out of range.
    """
    return of_gaussian(
        lambda left: conversions.zcdp_to_epsilon(rho, left), delta, num_rounds
    )


def of_gaussian(
    gaussian: Callable[[float], float],
    delta: float,
    num_rounds: int,
    delta_besides: float = 0.0,
) -> DrawnEpsilon:
    """Returns epsilon with drawn noise instead of Gaussian noise.

    Where it is (epsilon, delta')-DP with the Gaussian, it is (epsilon + N 2^-96,
    delta' (1 + N 2^-96) + N 2^-140 (1 + exp(epsilon)))-DP with N numbers that are
    drawn (docs/integer_noise.md). Takes a delta' for which this is within delta.

    Args:
        gaussian: From a delta, beside `delta_besides`, to epsilon with the Gaussian.
        delta: In (0, 1), beside `delta_besides`.
        num_rounds: Rounds that noise was added in, at least 1.
        delta_besides: Common part of all of these deltas.
    """
    numbers = fractions.Fraction(num_rounds) * 2**_LOG_VALUES_PER_ROUND
    factor = numbers * fractions.Fraction(2) ** _LOG_FACTOR
    probability = numbers * fractions.Fraction(2) ** _LOG_PROBABILITY
    whole = fractions.Fraction(delta)
    if whole > 4 * probability:
        # No less than epsilon at a larger delta', such as the one that is taken.
        largest = gaussian(delta / 2)
        if largest > _LARGEST_EXPONENT:
            return DrawnEpsilon(gaussian(delta), is_proved=False)
        power = fractions.Fraction(math.exp(largest) * (1 + 4 * rounding.UNIT))
        besides = fractions.Fraction(delta_besides)
        spent = (whole + besides) * factor + probability * (1 + power)
        if spent <= whole / 2:
            # Rounded downwards: the largest float that is no more is its negative's.
            left = -rounding.upwards(spent - whole)
            found = min(largest, gaussian(left))
            epsilon = rounding.upwards(fractions.Fraction(found) + factor)
            return DrawnEpsilon(epsilon, is_proved=True)
    return DrawnEpsilon(gaussian(delta), is_proved=False)
