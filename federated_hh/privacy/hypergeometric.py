"""Hypergeometric tails, bounded from both sides.

Deltas have to be rounded upwards and success probabilities downwards, also where they
are as small as 1e-300. A term of the tail is a product of at most min(holders, cohort)
quotients, so that nothing large cancels, as it does between log-gamma functions; the
rounding of all steps is bounded and added.
"""

import math
import sys
from typing import NamedTuple

import numpy as np

# Quotients that are multiplied one by one: 32 MiB and a few hundredths of a second.
_MOST_TERMS = 1 << 22
_CHUNK = 256
_UNIT = 2.0**-53


class Bounds(NamedTuple):
    """Two floats with the exact value between them; equal where it is exact."""

    low: float
    high: float


def upper_tail(population: int, holders: int, cohort: int, threshold: int) -> Bounds:
    """Bounds how likely a uniform cohort has at least `threshold` of the holders.

    Args:
        population: Users n, at least 1.
        holders: Users among them who hold something, 0 to n.
        cohort: Users m that are drawn without replacement, 0 to n.
        threshold: Any integer.

    Returns:
        Bounds on P(Hypergeometric(n, holders, m) >= threshold). They differ by a
        relative 1e-7 at most where min(holders, cohort) is up to 100,000; beyond four
        million, `high` is Chernoff's bound (Hoeffding 1963, Theorem 4) and `low` is 0,
        where the threshold is above the mean. Tails below 2.3e-308 have the bounds 0
        and 2.3e-308.
    """
    few, many = sorted((holders, cohort))
    least = max(0, few + many - population)
    if threshold > few:
        return Bounds(0.0, 0.0)
    if threshold <= least:
        return Bounds(1.0, 1.0)
    if few > _MOST_TERMS:
        return _chernoff(population, few, many, threshold)
    if _ratio(population, few, many, threshold) < 1:
        log_term, slack = _log_term(population, few, many, threshold)
        total = _sum_of_terms(population, few, many, threshold, upwards=True)
        return _scaled(log_term, slack, total)
    # The threshold is not above the mode: the lower tail is the one that falls off.
    log_term, slack = _log_term(population, few, many, threshold - 1)
    total = _sum_of_terms(population, few, many, threshold - 1, upwards=False)
    low, high = _scaled(log_term, slack, total)
    return Bounds(max(0.0, 1.0 - high - _UNIT), min(1.0, 1.0 - low + _UNIT))


def _ratio(population: int, few: int, many: int, x: int) -> float:
    """Returns P(X = x + 1) / P(X = x)."""
    return ((few - x) * (many - x)) / ((x + 1) * (population - few - many + x + 1))


def _log_term(population: int, few: int, many: int, x: int) -> tuple[float, float]:
    """Returns ln P(X = x), and a bound on its error.

    P(X = x) = C(few, x) (many)_x (n - many)_(few - x) / (n)_few, in falling
    factorials: the probability that `few` draws without replacement hit x times.
    """
    hit = np.arange(x, dtype=np.float64)
    missed = np.arange(few - x, dtype=np.float64)
    logs = np.concatenate(
        [
            np.log((few - hit) / (hit + 1)),
            np.log((many - hit) / (population - hit)),
            np.log((population - many - missed) / (population - x - missed)),
        ]
    )
    # Each quotient and logarithm is right to a few units in the last place, and
    # pairwise summation adds at most 40 roundings of partial sums.
    slack = _UNIT * (8 * logs.size + 64 * float(np.abs(logs).sum()))
    return float(logs.sum()), slack


def _sum_of_terms(
    population: int, few: int, many: int, x: int, upwards: bool
) -> tuple[float, float]:
    """Returns bounds on the sum of the terms from x on, in units of the term at x.

    The terms fall, and by a growing factor: once they are small, the rest is at most
    a geometric series.
    """
    total, term, done = 1.0, 1.0, 0
    last = few - x if upwards else x - max(0, few + many - population)
    while done < last:
        steps = np.arange(done, min(done + _CHUNK, last), dtype=np.float64)
        if upwards:
            at = x + steps
            ratios = ((few - at) / (at + 1)) * (
                (many - at) / (population - few - many + at + 1)
            )
        else:
            at = x - steps
            ratios = (at / (few - at + 1)) * (
                (population - few - many + at) / (many - at + 1)
            )
        terms = term * np.cumprod(ratios)
        total += float(terms.sum())
        term, done = float(terms[-1]), done + len(steps)
        ratio = float(ratios[-1])
        if ratio < 1 and term * ratio <= (1 - ratio) * total * _UNIT:
            break
    slack = 8 * _UNIT * (done + 2)
    return total * (1 - slack), total * (1 + slack)


def _scaled(log_term: float, slack: float, total: tuple[float, float]) -> Bounds:
    low = math.exp(log_term - slack) * total[0] * (1 - 4 * _UNIT)
    high = math.exp(log_term + slack) * total[1] * (1 + 4 * _UNIT)
    if high < sys.float_info.min:  # digits get lost there
        return Bounds(0.0, sys.float_info.min)
    return Bounds(max(0.0, low), min(1.0, high))


def _chernoff(population: int, few: int, many: int, threshold: int) -> Bounds:
    share, wanted = many / population, threshold / few
    if wanted <= share * (1 + 1e-9):
        return Bounds(0.0, 1.0)
    divergence = wanted * math.log(wanted / share)
    if wanted < 1:
        divergence += (1 - wanted) * math.log((1 - wanted) / (1 - share))
    # The two terms nearly cancel where the threshold is near the mean.
    exponent = few * (divergence - 16 * _UNIT)
    return Bounds(0.0, min(1.0, max(math.exp(-exponent), sys.float_info.min)))
