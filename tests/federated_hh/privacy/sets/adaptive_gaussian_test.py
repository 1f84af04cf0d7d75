"""Tests of set union's guarantee with adaptive weights against the exact law.

The oracle enumerates two passes over a word that others send too, and words of one
client alone. It sees the shared word's noisy sums even where nothing is released. The
levels are the code's, or random ones: the guarantee must not depend on them. Clients'
weights have a norm of 16, so that the law has few values.
"""

import dataclasses
import itertools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian

_NORM = 16
_CASES = 1000


def _noise_law(stddev):
    """Returns the values and probabilities of the integer noise on a sum."""
    variance = stddev**2 + 5
    reach = math.ceil(9 * math.sqrt(variance))
    values = np.arange(-reach, reach + 1)
    law = np.exp(-(values**2) / (2 * variance))
    return values, law / law.sum()


def _weights(levels, norm):
    """Returns the largest integers in proportion to levels with that norm."""
    squares = sum(level**2 for level in levels)
    return [
        math.isqrt(norm**2 * level**2 // squares) if level else 0 for level in levels
    ]


class _Run:
    """The exact law of two passes.

    Attributes:
        passes: Noise, thresholds and factors.
        levels: Returns the levels of totals after the first pass.
        others: Number of other clients, each of whom has the shared word alone.
        norm: Norm of a client's weights.
    """

    def __init__(self, passes, levels, others, norm=_NORM):
        self.passes, self.levels = passes, levels
        self.others, self.norm = others, norm
        laws = [_noise_law(passes.stddev(number)) for number in (0, 1)]
        (self.values, self.law), (self.later, self.later_law) = laws
        reached = np.cumsum(self.later_law)
        # Probability that the second pass's noise is below a number.
        self.below = lambda least: np.where(
            least - 1 < self.later[0],
            0.0,
            reached[np.clip(least - 1 - self.later[0], 0, len(reached) - 1)],
        )

    def own(self, weight):
        """Returns a word's law if nobody else has it, by level and second weight.

        Returns:
            [17, norm + 1]: probability of the level after the first pass and of no
            release in either, if the word has the weight in the second.
        """
        totals = self.passes.factors[0] * (weight + self.values)
        level = self.levels(totals)
        law = np.where(totals >= self.passes.thresholds[0], 0.0, self.law)
        found = np.zeros((17, self.norm + 1))
        for second in range(self.norm + 1):
            left = self.passes.thresholds[1] - totals
            least = -(-left // self.passes.factors[1]) - second
            kept = law * (self.below(least) if second else 1.0)
            found[:, second] = np.bincount(level, kept, 17)
        return found

    def outcomes(self, num_own, has_shared):
        """Returns the law of the shared word's sums with none of the own released.

        Args:
            num_own: Number of words that the client alone has.
            has_shared: True if it has the shared word too.

        Returns:
            [first sums, second sums + 1]; the last column is of no second sum.
        """
        first = _weights([1] * (num_own + has_shared), self.norm)
        shared = first[0] if has_shared else 0
        own = self.own(first[-1]) if num_own else None
        # The same sums for both of two neighbours.
        sums = np.arange(self.values[0], self.values[-1] + 1 + self.norm)
        chances = self._at(self.values, self.law, sums - shared)
        totals = self.passes.factors[0] * (self.others * self.norm + sums)
        level = self.levels(totals)
        level[totals >= self.passes.thresholds[0]] = 0
        laters = np.arange(self.later[0], self.later[-1] + 1 + self.norm)
        found = np.zeros((len(sums), len(laters) + 1))
        for each in np.unique(level):
            mixture = np.zeros(self.norm + 1)  # by the shared word's second weight
            for levels in itertools.product(range(17), repeat=num_own):
                second = _weights([int(each) * has_shared, *levels], self.norm)
                chance = math.prod(
                    own[one, weight]
                    for one, weight in zip(levels, second[1:], strict=True)
                )
                mixture[second[0]] += chance
            rows = level == each
            if not each:
                found[rows, -1] = chances[rows] * mixture.sum()
                continue
            law = sum(
                share * self._at(self.later, self.later_law, laters - weight)
                for weight, share in enumerate(mixture)
                if share
            )
            found[rows, :-1] = chances[rows, None] * law
        return found

    def _at(self, values, law, wanted):
        place = wanted - values[0]
        known = (place >= 0) & (place < len(values))
        return np.where(known, law[np.clip(place, 0, len(values) - 1)], 0.0)


def _random_levels(random, passes):
    """Returns levels that change at random with the total, and with its size."""
    scale = passes.factors[0] * passes.stddev(0)
    table = random.choice([0, 0, 1, 4, 16], 64).astype(np.uint8)
    width = random.uniform(0.2, 2) * scale
    return lambda totals: table[np.floor(totals / width).astype(np.int64) % 64]


class AdaptiveGaussianTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        weighted_gaussian.weights.cache_clear()
        self.addCleanup(weighted_gaussian.weights.cache_clear)
        self.enter_context(mock.patch.object(weighted_gaussian, "NORM", _NORM))

    def violations(self, *, replaced=False, lower=0.0, norm=_NORM, cases=_CASES):
        """Counts the random cases of a larger delta than claimed.

        Args:
            replaced: Whether neighbours have other words, or none.
            lower: Standard deviations by which thresholds are too low.
            norm: Norm of the client's weights; 16 is right.
            cases: Number of cases.

        Returns:
            The count, and the largest exact delta over the claimed one.
        """
        random = np.random.default_rng(1)
        found, largest = 0, 0.0
        for case in range(cases):
            of_thresholds = math.exp(random.uniform(math.log(1e-6), math.log(0.2)))
            multipliers = tuple(random.uniform(0.3, 1.5, 2).tolist())
            passes = adaptive_gaussian.AdaptiveGaussian.of_noise(
                3, multipliers, of_thresholds / 2
            )
            delta = min(0.9, of_thresholds * (1 + math.exp(random.normal(0, 2))))
            power = math.exp(passes.epsilon(delta, replaced=replaced).epsilon)
            low = tuple(
                max(1, math.ceil(threshold - lower * passes.total_stddev(number)))
                for number, threshold in enumerate(passes.thresholds)
            )
            used = dataclasses.replace(passes, thresholds=low)
            levels = lambda totals, used=used: used.levels(0, totals)  # noqa: E731
            if case % 2:
                levels = _random_levels(random, used)
            run = _Run(used, levels, int(random.integers(1, 5)), norm)
            has_shared = bool(random.integers(0, 2))
            own = int(random.integers(not has_shared, 3))
            first = run.outcomes(own, has_shared)
            other = bool(random.integers(0, 2)), int(random.integers(0, 2))
            second = run.outcomes(other[1], other[0]) if replaced else None
            if second is None:
                second = run.outcomes(0, False)
            for one, two in ((first, second), (second, first)):
                exact = np.maximum(one - power * two, 0).sum() + 1 - one.sum()
                largest = max(largest, exact / delta)
                found += exact > delta * (1 + 1e-9) + 1e-14
        return found, largest

    @parameterized.parameters(False, True)
    def test_no_violation_in_a_thousand_cases(self, replaced):
        found, largest = self.violations(replaced=replaced)
        self.assertEqual(found, 0)
        # Else the cases would say little.
        self.assertGreater(largest, 0.8)

    @parameterized.parameters(({"lower": 0.3},), ({"norm": 24},))
    def test_cases_would_show_low_thresholds_and_large_norms(self, wrong):
        found, _ = self.violations(**wrong, cases=100)
        self.assertGreater(found, 10)

    @parameterized.parameters(((1.0,), 1), ((1.2, 0.7), 1), ((3.0, 2.0, 1.5), 3))
    def test_crossing_is_that_of_the_exact_law(self, multipliers, most):
        passes = adaptive_gaussian.AdaptiveGaussian.of_noise(most, multipliers, 1e-3)
        law, start = np.ones(1), 0
        for number, factor in enumerate(passes.factors):
            values, noise = _noise_law(passes.stddev(number))
            spread = np.zeros((len(noise) - 1) * factor + 1)
            spread[::factor] = noise
            law, start = np.convolve(law, spread), start + factor * int(values[0])
        upwards = np.append(np.cumsum(law[::-1])[::-1], 0.0)
        last = passes.num_passes - 1

        def exact(threshold):
            found = 0.0
            for t in range(1, most + 1):
                own = math.isqrt(_NORM**2 // t) - _NORM
                own = passes.factors[0] * own + passes.unit(last)
                place = np.clip(threshold - own - start, 0, len(law))
                found = max(found, 1 - (1 - upwards[place]) ** t)
            return found

        near = passes.unit(last) + math.ceil(2 * passes.total_stddev(last))
        for threshold in (near, passes.thresholds[last]):
            bound = passes.crossing_at(last, threshold)
            # Less than that of a threshold lower by a step of each sum.
            highest = exact(threshold - sum(passes.factors)) * (1 + 1e-2)
            self.assertBetween(bound, exact(threshold), highest)

    def test_levels_are_highest_where_weight_decides(self):
        passes = adaptive_gaussian.AdaptiveGaussian.of_noise(9, (2.0, 1.0), 1e-6)
        self.assertEqual(passes.factors, (16, 64))
        totals = np.arange(-passes.thresholds[1], passes.thresholds[0])
        levels = passes.levels(0, totals).astype(int)
        top = np.argmax(levels)
        self.assertEqual(levels[top], 16)
        self.assertTrue((np.diff(levels[: top + 1]) >= 0).all())
        self.assertTrue((np.diff(levels[top:]) <= 0).all())
        self.assertEqual((levels[0], levels[-1]), (0, 4))
        self.assertEqual(passes.levels(1, totals).max(), 0)


if __name__ == "__main__":
    absltest.main()
