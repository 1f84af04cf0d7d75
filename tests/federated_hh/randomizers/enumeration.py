"""Exact laws of reports and of their sums, listed outcome by outcome.

Written from the papers' algorithms and not from the code under test. A law is a
mapping from an outcome, a tuple of integers, to its probability.
"""

import collections
import fractions
import itertools

import numpy as np
from scipy import stats

Law = dict[tuple[int, ...], fractions.Fraction]


def subset_selection(
    domain_size: int, size: int, item: int, own: fractions.Fraction
) -> Law:
    """Sun et al. 2024, Algorithm 1: a set as the tuple of its items in order."""
    law = collections.defaultdict(fractions.Fraction)
    others = [z for z in range(domain_size) if z != item]
    with_item = list(itertools.combinations(others, size - 1))
    for rest in with_item:
        law[tuple(sorted((item, *rest)))] += own / len(with_item)
    without_item = list(itertools.combinations(others, size))
    for rest in without_item:
        law[rest] += (1 - own) / len(without_item)
    return dict(law)


def one_hot(
    domain_size: int, item: int, own: fractions.Fraction, other: fractions.Fraction
) -> Law:
    """McMillan et al. 2022, Algorithms 1 and 3: a row of independent bits."""
    law = {}
    for bits in itertools.product((0, 1), repeat=domain_size):
        probability = fractions.Fraction(1)
        for z, bit in enumerate(bits):
            chance = own if z == item else other
            probability *= chance if bit else 1 - chance
        law[bits] = probability
    return law


def counts_of_sets(law: Law, domain_size: int) -> Law:
    """Turns sets of items into rows of zeros and ones."""
    return {
        tuple(int(z in items) for z in range(domain_size)): probability
        for items, probability in law.items()
    }


def sum_of(laws: list[Law]) -> Law:
    """Returns the law of the sum of independent rows."""
    total = {(0,) * len(next(iter(laws[0]))): fractions.Fraction(1)}
    for law in laws:
        longer = collections.defaultdict(fractions.Fraction)
        for row, probability in total.items():
            for step, chance in law.items():
                key = tuple(a + b for a, b in zip(row, step, strict=True))
                longer[key] += probability * chance
        total = dict(longer)
    return total


def largest_ratio(one: Law, other: Law) -> fractions.Fraction:
    """Returns the largest ratio of the probabilities of one outcome."""
    return max(one[outcome] / other[outcome] for outcome in one)


def p_value(outcomes: np.ndarray, law: Law) -> float:
    """Tests draws against a law by Pearson's chi-squared statistic.

    Args:
        outcomes: int64, shape [draws, length]; each row is an outcome.
        law: The law that they should follow.

    Returns:
        The probability of so large a statistic under the law; 0 if an outcome came
        up that the law does not have. Outcomes expected fewer than 20 times are taken
        together, from the rarest on, so that the statistic has its limiting law.
    """
    rows, counts = np.unique(outcomes, axis=0, return_counts=True)
    seen = collections.Counter(
        dict(zip(map(tuple, rows.tolist()), counts.tolist(), strict=True))
    )
    if not set(seen) <= {outcome for outcome, chance in law.items() if chance}:
        return 0.0
    observed, expected = [0], [0.0]
    for outcome, chance in sorted(law.items(), key=lambda entry: entry[1]):
        if expected[-1] >= 20:
            observed.append(0)
            expected.append(0.0)
        observed[-1] += seen[outcome]
        expected[-1] += float(chance) * len(outcomes)
    if expected[-1] < 20 and len(expected) > 1:
        observed[-2:] = [sum(observed[-2:])]
        expected[-2:] = [sum(expected[-2:])]
    if len(expected) == 1:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))
