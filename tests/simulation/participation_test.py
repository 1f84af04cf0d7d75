"""Tests of cohorts and of the random streams they are drawn from."""

import itertools

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from randomness import seeds
from simulation import participation


class SeedsTest(parameterized.TestCase):
    def test_streams_differ_by_every_part_of_their_name(self):
        names = [
            (1, "a"),
            (2, "a"),
            (1, "b"),
            (1, "a", 0),
            (1, "a", 1),
            (1, "a", 2**32),
            (1, "a", 0, 1),
            (1, "a", 1, 0),
            (1, "a", 1, 0, 0),
        ]
        states = {seeds.derive(*name).generate_state(4).tobytes() for name in names}
        self.assertLen(states, len(names))

    def test_same_name_same_stream(self):
        self.assertEqual(
            seeds.generator(7, "x", 3).random(), seeds.generator(7, "x", 3).random()
        )
        seed = seeds.stateless_seed(7, "x", 3)
        self.assertEqual((seed.dtype, seed.shape), (np.int32, (2,)))

    @parameterized.parameters(((-1, "a"),), ((1, -2),))
    def test_negative_numbers_are_refused(self, name):
        with self.assertRaisesRegex(ValueError, "-"):
            seeds.derive(*name)


class UniformCohortsTest(parameterized.TestCase):
    def test_every_subset_is_equally_likely(self):
        # Chi-square over the 20 cohorts of 3 out of 6, 20,000 rounds, fixed seed;
        # false alarm rate 1e-6.
        cohorts = participation.UniformCohorts(6, 3, noise_key=1)
        subsets = {s: 0 for s in itertools.combinations(range(6), 3)}
        for round_number in range(20_000):
            subsets[tuple(cohorts.cohort(round_number).tolist())] += 1
        self.assertGreater(stats.chisquare(list(subsets.values())).pvalue, 1e-6)

    def test_large_cohort_is_distinct_sorted_and_in_range(self):
        cohort = participation.UniformCohorts(10**6, 22_000, noise_key=3).cohort(0)
        self.assertEqual(cohort.dtype, np.int64)
        self.assertLen(cohort, 22_000)
        self.assertTrue(np.all(np.diff(cohort) > 0))
        self.assertBetween(cohort[0], 0, cohort[-1])
        self.assertLess(cohort[-1], 10**6)

    def test_rounds_and_streams_are_fresh_and_repeatable(self):
        first = participation.UniformCohorts(1000, 100, noise_key=1)
        other = participation.UniformCohorts(1000, 100, 1, stream=("words", 1))
        np.testing.assert_array_equal(first.cohort(5), first.cohort(5))
        self.assertFalse(np.array_equal(first.cohort(5), first.cohort(6)))
        self.assertFalse(np.array_equal(first.cohort(5), other.cohort(5)))

    @parameterized.parameters(0, 11)
    def test_size_out_of_range(self, cohort_size):
        with self.assertRaisesRegex(ValueError, f"cohort_size is {cohort_size}"):
            participation.UniformCohorts(10, cohort_size, noise_key=1)


class DisjointCohortsTest(parameterized.TestCase):
    def test_no_client_is_in_two_cohorts(self):
        cohorts = participation.DisjointCohorts(1000, 90, 11, seed=3)
        drawn = [cohorts.cohort(k) for k in range(11)]
        everyone = np.concatenate([*drawn, cohorts.rest()])
        np.testing.assert_array_equal(np.sort(everyone), np.arange(1000))
        for cohort in drawn:
            self.assertLen(cohort, 90)
            self.assertTrue(np.all(np.diff(cohort) > 0))

    def test_every_split_is_equally_likely(self):
        # Chi-square over the 30 ways to give 5 clients to two cohorts of 2, one left
        # out; 6,000 seeds, false-alarm rate 1e-6.
        counts = {}
        for seed in range(6_000):
            cohorts = participation.DisjointCohorts(5, 2, 2, seed)
            split = tuple(tuple(cohorts.cohort(k).tolist()) for k in range(2))
            counts[split] = counts.get(split, 0) + 1
        self.assertLen(counts, 30)
        self.assertGreater(stats.chisquare(list(counts.values())).pvalue, 1e-6)

    def test_too_few_clients(self):
        with self.assertRaisesRegex(ValueError, "need 1,080 clients.*has 1,000"):
            participation.DisjointCohorts(1000, 90, 12, seed=3)

    @parameterized.parameters(-1, 2)
    def test_no_such_cohort(self, number):
        with self.assertRaisesRegex(ValueError, f"cohort {number} does not exist"):
            participation.DisjointCohorts(10, 2, 2, seed=3).cohort(number)


class MarkParticipantsTest(absltest.TestCase):
    def test_marks_and_refuses(self):
        nobody = np.zeros(5, bool)
        some = participation.mark_participants(nobody, np.array([1, 3]))
        self.assertEqual(some.tolist(), [False, True, False, True, False])
        self.assertFalse(nobody.any())
        with self.assertRaisesRegex(
            participation.ClientTakesPartTwiceError, "1 clients .* before, 3"
        ):
            participation.mark_participants(some, np.array([0, 3]))
        with self.assertRaisesRegex(
            participation.ClientTakesPartTwiceError, "in the cohort twice"
        ):
            participation.mark_participants(nobody, np.array([2, 2]))
        with self.assertRaisesRegex(ValueError, r"\[0, 5\)"):
            participation.mark_participants(nobody, np.array([5]))


if __name__ == "__main__":
    absltest.main()
