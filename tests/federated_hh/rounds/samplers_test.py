"""Tests of cohorts against the law that the accounting takes them to have."""

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomness import streams
from federated_hh.rounds import samplers


def _stream(key):
    return streams.Stream(key, ("cohorts",))


def _cohorts(sampler, count, key=1):
    """Returns the cohorts of a repeat's first rounds, and what is remembered."""
    places, found = sampler.initialize(), []
    for number in range(count):
        drawn = sampler.draw(places, number, _stream(key))
        found.append(drawn.cohort)
        places = drawn.state
    return found, places


class UniformCohortsTest(parameterized.TestCase):
    def test_every_subset_is_equally_likely(self):
        # Chi-square over the 20 cohorts of 3 out of 6, 20,000 rounds, fixed key;
        # false alarm rate 1e-6.
        counts = dict.fromkeys(itertools.combinations(range(6), 3), 0)
        for cohort in _cohorts(samplers.UniformCohorts(6, 3), 20_000)[0]:
            counts[tuple(cohort.tolist())] += 1
        self.assertGreater(stats.chisquare(list(counts.values())).pvalue, 1e-6)

    def test_large_cohort_is_distinct_sorted_and_in_range(self):
        [cohort], _ = _cohorts(samplers.UniformCohorts(10**6, 22_000), 1)
        self.assertEqual(cohort.dtype, np.int64)
        self.assertLen(cohort, 22_000)
        self.assertTrue(np.all(np.diff(cohort) > 0))
        self.assertBetween(cohort[0], 0, cohort[-1])
        self.assertLess(cohort[-1], 10**6)

    def test_rounds_and_keys_are_fresh_and_repeatable(self):
        sampler = samplers.UniformCohorts(1000, 100)
        (first, second), _ = _cohorts(sampler, 2)
        np.testing.assert_array_equal(_cohorts(sampler, 1)[0][0], first)
        self.assertFalse(np.array_equal(first, second))
        self.assertFalse(np.array_equal(_cohorts(sampler, 1, key=2)[0][0], first))


class DisjointCohortsTest(parameterized.TestCase):
    def test_no_client_is_in_two_cohorts(self):
        sampler = samplers.DisjointCohorts(1000, 90)
        drawn, places = _cohorts(sampler, 11, key=3)
        rest = sampler.rest(11, _stream(3))
        everyone = np.concatenate([*drawn, rest])
        np.testing.assert_array_equal(np.sort(everyone), np.arange(1000))
        np.testing.assert_array_equal(rest, np.flatnonzero(~places.took_part))
        for cohort in drawn:
            self.assertLen(cohort, 90)
            self.assertTrue(np.all(np.diff(cohort) > 0))

    def test_every_split_is_equally_likely(self):
        # Chi-square over the 30 ways to give 5 clients to two cohorts of 2, one left
        # out; 6,000 keys, false-alarm rate 1e-6.
        counts = {}
        for key in range(6_000):
            drawn, _ = _cohorts(samplers.DisjointCohorts(5, 2), 2, key)
            split = tuple(tuple(cohort.tolist()) for cohort in drawn)
            counts[split] = counts.get(split, 0) + 1
        self.assertLen(counts, 30)
        self.assertGreater(stats.chisquare(list(counts.values())).pvalue, 1e-6)

    def test_too_few_clients(self):
        sampler = samplers.DisjointCohorts(1000, 90)
        with self.assertRaisesRegex(ValueError, "need 1,080 clients.*has 1,000"):
            _cohorts(sampler, 12)

    def test_nobody_who_took_part_is_asked_again(self):
        sampler = samplers.DisjointCohorts(10, 2)
        [first, _], places = _cohorts(sampler, 2)
        message = "2 cohorts took part before, with 2 of this round's clients"
        with self.assertRaisesRegex(samplers.ClientTakesPartTwiceError, message):
            sampler.draw(places, 0, _stream(1))
        # As many cohorts as there were, of clients who were in them.
        took_part = np.ones(10, bool)
        took_part[first[0]] = False
        places = dataclasses.replace(places, took_part=took_part)
        with self.assertRaises(samplers.ClientTakesPartTwiceError):
            sampler.draw(places, 2, _stream(2))

    def test_what_was_remembered_before_is_left_as_it_is(self):
        sampler = samplers.DisjointCohorts(10, 2)
        nobody = sampler.initialize()
        sampler.draw(nobody, 0, _stream(1))
        self.assertFalse(nobody.took_part.any())

    def test_a_client_takes_part_once(self):
        limits = samplers.DisjointCohorts(10, 2).limits(5)
        self.assertEqual((limits.max_participation, limits.min_separation), (1, 4))

    def test_a_state_of_another_round(self):
        sampler = samplers.DisjointCohorts(10, 2)
        with self.assertRaisesRegex(
            samplers.ClientTakesPartTwiceError, "round 2: 0 cohorts took part before"
        ):
            sampler.draw(sampler.initialize(), 1, streams.Stream(1))


class EverybodyTest(absltest.TestCase):
    def test_all_in_each_round(self):
        sampler = samplers.Everybody(5)
        self.assertEqual((sampler.num_clients, sampler.cohort_size), (5, 5))
        for number in range(3):
            drawn = sampler.draw(sampler.initialize(), number, streams.Stream(1))
            self.assertEqual(drawn.cohort.tolist(), [0, 1, 2, 3, 4])
        limits = sampler.limits(3)
        self.assertEqual((limits.max_participation, limits.min_separation), (3, 0))
        with self.assertRaisesRegex(ValueError, "num_clients is 0;.* at le"):
            samplers.Everybody(0)


class BadSizesTest(parameterized.TestCase):
    @parameterized.product(
        sampler=[samplers.UniformCohorts, samplers.DisjointCohorts], size=[0, 11]
    )
    def test_size_out_of_range(self, sampler, size):
        with self.assertRaisesRegex(ValueError, f"cohort_size is {size}"):
            sampler(10, size)


if __name__ == "__main__":
    absltest.main()
