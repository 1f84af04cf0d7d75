"""Tests of set union's guarantee against the exact law of small runs.

The oracle knows no Gaussian: it enumerates the discrete law of the noise, and all
outcomes of a run on a data set and on its neighbour, in both directions. Client weights
have a norm of 16 there, so that the law has few values.
"""

import dataclasses
import itertools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.sets import weighted_gaussian

_NORM = 16
_CASES = 1000
_WORDS = 3


def _noise_law(stddev):
    """Returns the values and probabilities of the integer noise on a sum."""
    variance = stddev**2 + 5
    reach = math.ceil(14 * math.sqrt(variance))
    values = np.arange(-reach, reach + 1)
    law = np.exp(-(values**2) / (2 * variance))
    return values, law / law.sum()


def _released(sums, threshold, values, law):
    """Returns, of each word, the probability that it is released."""
    rates = [law[values >= threshold - total].sum() if total else 0.0 for total in sums]
    return np.array(rates)


def _set_law(passes, own, others, norm):
    """Enumerates which words each pass releases: sequence of sets to probability.

    Args:
        passes: Noise and thresholds.
        own: Words of the client.
        others: Words of each other client.
        norm: Norm of a client's weights.
    """
    laws = {(): 1.0}
    for number in range(passes.num_passes):
        values, law = _noise_law(passes.noise_multipliers[number] * norm)
        after = {}
        for past, before in laws.items():
            left_out = set().union(*past)
            sums = [0] * _WORDS
            for words in (own, *others):
                left = sorted(set(words) - left_out)[: passes.contribution_bound]
                for word in left:
                    sums[word] += math.isqrt(norm**2 // len(left))
            rates = _released(sums, passes.thresholds[number], values, law)
            for kept in itertools.product((False, True), repeat=_WORDS):
                chance = np.prod(np.where(kept, rates, 1 - rates))
                if chance:
                    found = frozenset(i for i in range(_WORDS) if kept[i])
                    after[(*past, found)] = before * chance
        laws = after
    return laws


def _weight_law(passes, own, others, norm):
    """Enumerates one pass over one word that all share, with its noisy weight.

    Returns:
        Probabilities of its noisy sum, first of no release; and the probability that
        none of the client's other words is released.
    """
    values, law = _noise_law(passes.noise_multipliers[0] * norm)
    each = math.isqrt(norm**2 // len(own)) if own else 0
    total = others * norm + (each if 0 in own else 0)
    outcomes = np.arange(passes.thresholds[0], passes.thresholds[0] + 20 * len(values))
    place = outcomes - total + len(values) // 2
    known = (place >= 0) & (place < len(values))
    found = np.where(known, law[np.clip(place, 0, len(values) - 1)], 0.0)
    alone = [word for word in own if word]
    missed = np.prod(
        1 - _released([each] * len(alone), passes.thresholds[0], values, law)
    )
    return np.append(1 - found.sum(), found), missed


def _delta(epsilon, first, second):
    """Returns the hockey-stick divergence of two laws by outcome."""
    return sum(
        max(0.0, chance - math.exp(epsilon) * second.get(outcome, 0.0))
        for outcome, chance in first.items()
    )


class WeightedGaussianTest(parameterized.TestCase):
    def small(self):
        """Makes the weights of clients small."""
        weighted_gaussian.weights.cache_clear()
        self.addCleanup(weighted_gaussian.weights.cache_clear)
        self.enter_context(mock.patch.object(weighted_gaussian, "NORM", _NORM))

    def passes(self, random, num_passes, delta):
        """Returns random noise, with the thresholds that delta has."""
        bound = int(random.integers(1, _WORDS + 1))
        multipliers = tuple(random.uniform(0.3, 4.0, num_passes).tolist())
        return weighted_gaussian.WeightedGaussian.of_noise(
            bound, multipliers, delta / num_passes
        )

    def violations(self, passes_of, *, replaced=False):
        """Returns how many of 1,000 random cases have a larger delta than claimed."""
        random = np.random.default_rng(1)
        found, largest = 0, 0.0
        for case in range(_CASES):
            of_thresholds = math.exp(random.uniform(math.log(1e-6), math.log(0.2)))
            passes = passes_of(random, 1 + case % 2, of_thresholds)
            delta = min(0.9, of_thresholds * (1 + math.exp(random.normal(0, 2))))
            epsilon = passes.epsilon(delta, replaced=replaced).epsilon
            sets = [
                random.choice(_WORDS, random.integers(0, _WORDS + 1), replace=False)
                for _ in range(int(random.integers(1, 5)))
            ]
            own, other, *others = [tuple(map(int, words)) for words in (*sets, ())]
            laws = [
                _set_law(passes, words, others, _NORM)
                for words in (own, other if replaced else ())
            ]
            for first, second in (laws, laws[::-1]):
                exact = _delta(epsilon, first, second)
                largest = max(largest, exact / delta)
                found += exact > delta * (1 + 1e-9)
        return found, largest

    @parameterized.parameters(False, True)
    def test_no_violation_in_a_thousand_cases(self, replaced):
        self.small()
        found, largest = self.violations(self.passes, replaced=replaced)
        self.assertEqual(found, 0)
        # Else the cases would say little.
        self.assertGreater(largest, 0.3)

    def test_cases_would_show_thresholds_of_one_word(self):
        self.small()

        def passes(random, num_passes, delta):
            right = self.passes(random, num_passes, delta)
            of_one = weighted_gaussian.WeightedGaussian.of_noise(
                1, right.noise_multipliers, delta / num_passes
            )
            low = tuple(threshold - _NORM // 2 for threshold in of_one.thresholds)
            wrong = dataclasses.replace(right, thresholds=low)
            # What is claimed are the right thresholds' numbers.
            object.__setattr__(wrong, "epsilon", right.epsilon)
            return wrong

        found, _ = self.violations(passes)
        self.assertGreater(found, 20)

    def test_no_violation_with_noisy_weights(self):
        self.small()
        random = np.random.default_rng(2)
        largest = 0.0
        for _ in range(_CASES):
            of_thresholds = math.exp(random.uniform(math.log(1e-6), math.log(0.2)))
            passes = self.passes(random, 1, of_thresholds)
            delta = min(0.9, of_thresholds * (1 + math.exp(random.normal(0, 2))))
            epsilon = passes.epsilon(delta).epsilon
            size = int(random.integers(1, passes.contribution_bound + 1))
            own = tuple(range(int(random.integers(0, 2)), size))
            others = int(random.integers(1, 6))
            with_client, missed = _weight_law(passes, own, others, _NORM)
            without, _ = _weight_law(passes, (), others, _NORM)
            power = math.exp(epsilon)
            forward = np.maximum(with_client * missed - power * without, 0).sum()
            backward = np.maximum(without - power * with_client * missed, 0).sum()
            self.assertLessEqual(forward + 1 - missed, delta * (1 + 1e-9))
            self.assertLessEqual(backward, delta * (1 + 1e-9))
            largest = max(largest, (forward + 1 - missed) / delta)
        self.assertGreater(largest, 0.8)

    def test_an_exchange_of_words_costs_twice_the_zcdp(self):
        # Two words that many others send, so that both are always released; the client
        # has one on D and the other on D'. All noisy weights are enumerated.
        self.small()
        for multiplier, delta in ((1.0, 1e-2), (0.5, 1e-4), (2.0, 1e-3)):
            passes = weighted_gaussian.WeightedGaussian.of_noise(
                _WORDS, (multiplier,), 1e-9
            )
            power = math.exp(passes.epsilon(delta, replaced=True).epsilon)
            _, law = _noise_law(multiplier * _NORM)
            more, fewer = np.pad(law, (_NORM, 0)), np.pad(law, (0, _NORM))
            with_first = np.outer(more, fewer)
            exact = np.maximum(with_first - power * with_first.T, 0).sum()
            self.assertBetween(exact, 0.3 * delta, delta)

    def test_crossing_is_that_of_the_exact_law(self):
        self.small()
        for stddev, most in ((8.0, 1), (16.0, 3), (30.0, 3)):
            values, law = _noise_law(stddev)

            def exact(least, most=most, values=values, law=law):
                return max(
                    1 - (1 - law[values >= least - math.isqrt(256 // t)].sum()) ** t
                    for t in range(1, most + 1)
                )

            for threshold in (20, 60, 90):
                bound = weighted_gaussian.crossing(threshold, stddev, most)
                # Less than that of a threshold one lower.
                highest = exact(threshold - 1) * (1 + 1e-9) + 1e-15
                self.assertBetween(bound, exact(threshold), highest)

    @parameterized.parameters(0.3, 1.0, 20.0)
    def test_the_tail_bounds_the_exact_law_closely(self, stddev):
        values, law = _noise_law(stddev)
        least = np.arange(-5, int(6 * stddev) + 12)
        exact = np.array([law[values >= m].sum() for m in least])
        bound = np.exp(weighted_gaussian.log_noise_tail(least, stddev))
        self.assertTrue((bound >= exact * (1 - 1e-12)).all())
        # Rounding at random moves a threshold by less than one unit.
        later = np.array([law[values >= m - 1].sum() for m in least])
        is_above = least >= 1  # below, a bound of 1 is enough
        self.assertTrue((bound <= later * (1 + 1e-9))[is_above].all())

    def test_weights_have_the_norm_in_integers(self):
        counts = np.arange(1, 2000)
        weights = weighted_gaussian.weights(1999)[1:].astype(object)
        norms = counts.astype(object) * weights**2
        self.assertTrue((norms <= weighted_gaussian.NORM**2).all())
        # The next integer would exceed it.
        self.assertTrue((counts * (weights + 1) ** 2 > weighted_gaussian.NORM**2).all())
        self.assertEqual(weights[0], weighted_gaussian.NORM)

    @parameterized.parameters(
        (4, 1e-12, [1]), (1, 1e-10, [1, 3]), (0.01, 1e-5, [1]), (20, 0.05, [1, 1, 1])
    )
    def test_solved_parameters_spend_what_was_asked(self, epsilon, delta, shares):
        found = weighted_gaussian.solve(epsilon, delta, 50, shares)
        reached = found.epsilon(delta)
        self.assertTrue(reached.is_proved)
        self.assertBetween(reached.epsilon, 0.9999 * epsilon, epsilon)
        self.assertBetween(found.crossing, 0.49 * delta, 0.5 * delta)
        costs = [1 / z**2 for z in found.noise_multipliers]
        np.testing.assert_allclose(np.divide(costs, costs[0]), shares, rtol=1e-9)
        # One less would cost more.
        for number, threshold in enumerate(found.thresholds):
            arguments = found.stddev(number), 50
            more = weighted_gaussian.crossing(threshold - 1, *arguments)
            self.assertGreater(more * len(shares), 0.4999 * delta)
        several = found.epsilon(min(0.9, 3 * delta), 3).epsilon
        self.assertBetween(several, epsilon, 3 * epsilon)

    def test_holders_needed_are_found_so_often(self):
        found = weighted_gaussian.solve(1, 1e-10, 20, [1])
        for words in (1, 20):
            for probability in (0.5, 0.9):
                holders = found.holders_needed(probability, words)
                each = 1 / math.sqrt(words)
                threshold = found.thresholds[0] / weighted_gaussian.NORM
                rates = [
                    1 - _normal(threshold - each * h, found.noise_multipliers[0])
                    for h in (holders, holders - 1)
                ]
                self.assertGreaterEqual(rates[0], probability - 1e-4)
                self.assertLess(rates[1], probability + 1e-4)

    @parameterized.parameters(
        ({"contribution_bound": 0}, "contribution_bound is 0"),
        ({"noise_multipliers": ()}, "num_passes is 0"),
        ({"noise_multipliers": (0.0,)}, "noise_multiplier is 0"),
        ({"noise_multipliers": (1.0, 1.0)}, "thresholds has 1 numbers"),
        ({"thresholds": (0,)}, "threshold is 0"),
    )
    def test_impossible_parameters_are_refused(self, changed, message):
        values = {
            "contribution_bound": 5,
            "noise_multipliers": (1.0,),
            "thresholds": (100,),
        }
        with self.assertRaisesRegex(ValueError, message):
            weighted_gaussian.WeightedGaussian(**values | changed)

    def test_deltas_that_nothing_reaches_are_refused(self):
        for epsilon, delta, message in (
            (1, 1e-40, "epsilon is 1 and delta 1e-40: nothing is proved"),
            (50, 1e-12, "epsilon is 50 and delta 1e-12: nothing is proved"),
            (0.1, 0.5, "epsilon is 0.1, less than the thresholds of delta = 0.5"),
            (51, 1e-3, "epsilon is 51"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                weighted_gaussian.solve(epsilon, delta, 5, [1])
        found = weighted_gaussian.solve(1, 1e-6, 5, [1])
        for delta, runs in ((1e-8, 1), (1.5 * found.crossing, 2)):
            with self.assertRaisesRegex(ValueError, "delta is .*; it has to be above"):
                found.epsilon(delta, runs)


def _normal(value, stddev):
    return 0.5 * math.erfc(-value / stddev / math.sqrt(2))


if __name__ == "__main__":
    absltest.main()
