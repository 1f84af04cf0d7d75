"""Tests of the mean-field law against clients drawn one by one."""

import os
import string

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions
from federated_hh.heavy_hitters.ldp_triehh import parameters as parameters_lib
from federated_hh.populations.columns import generated_words
from federated_hh.populations.synthetic import pitman_yor
from studies.sun_2024 import mean_field

_CLIENTS = 10_000


def written(case, words, chances, typed_ends):
    """Returns a law of words on disk, of 40,000 clients."""
    folder = os.path.join(case.create_tempdir().full_path, "law")
    with generated_words.new_law(folder) as writer:
        writer.set_law(words, np.array(chances), np.array(typed_ends))
        writer.finish(None, {"num_clients": 40_000, "seed": 1})
    return generated_words.GeneratedWords.open(folder)


def typed(masses, words, habits, random):
    """Returns how often each of drawn clients types each word."""
    if habits is None:
        return random.poisson(words * masses, (_CLIENTS, len(masses)))
    openers, guests = pitman_yor.seat(
        random, np.full(_CLIENTS, words), habits.discount, habits.concentration
    )
    counts = np.zeros((_CLIENTS, len(masses)), int)
    served = random.choice(len(masses), len(openers), p=masses)
    np.add.at(counts, (openers // words, served), guests)
    return counts


def drawn_shares(counts, bound, sampler, random):
    """Returns the share of clients with these counts that report each candidate."""
    keys = random.random(counts.shape)
    if sampler is contributions.ItemSampler.GREEDY:
        keys += counts
    keys = np.where(counts > 0, keys, -1)
    least = np.partition(keys, -bound, axis=1)[:, -bound]
    return ((keys >= least[:, np.newaxis]) & (counts > 0)).mean(axis=0)


class ReportedSharesTest(parameterized.TestCase):
    @parameterized.product(
        mean=(3, 20, 100, 1000),
        sampler=tuple(contributions.ItemSampler),
        habits=(None, mean_field.Habits(0.8, 20.0), mean_field.Habits(0.0, 50.0)),
    )
    def test_shares_are_those_of_drawn_clients(self, mean, sampler, habits):
        masses = 1 / np.arange(1, 301)
        masses /= masses.sum()
        random = np.random.default_rng(mean)
        counts = typed(masses, mean, habits, random)
        drawn = drawn_shares(counts, 20, sampler, random)
        classes = mean_field.Volumes(np.array([float(mean)]), np.array([1.0]), habits)
        found = mean_field.reported_shares(masses, classes, 20, sampler)
        # 5 standard errors of the draws, and the approximation's error.
        error = 5 * np.sqrt(found * (1 - found) / _CLIENTS) + 0.02
        np.testing.assert_array_less(np.abs(found - drawn), error)
        self.assertAlmostEqual(found.sum(), drawn.sum(), delta=0.03 * drawn.sum())

    def test_repeats_are_those_of_seated_guests(self):
        habits = mean_field.Habits(0.6, 5.0)
        number, repeats = habits.repeats(30)
        self.assertAlmostEqual(number * (repeats @ np.arange(1, 31)), 30)
        # By hand: two words are one draw with probability (1 - d) / (1 + a).
        np.testing.assert_allclose(habits.repeats(2)[0], 2 - 0.4 / 6)
        _, guests = pitman_yor.seat(
            np.random.default_rng(1), np.full(_CLIENTS, 30), 0.6, 5.0
        )
        drawn = np.bincount(guests, minlength=31)[1:] / _CLIENTS
        # 5 standard errors, were numbers of tables of a size Poisson's.
        error = 5 * np.sqrt(number * repeats / _CLIENTS) + 1e-4
        np.testing.assert_array_less(np.abs(drawn - number * repeats), error)

    def test_what_nobody_types(self):
        classes = mean_field.Volumes(np.array([50.0]), np.array([1.0]))
        found = mean_field.reported_shares(
            np.array([0.5, 0.0, 0.5]), classes, 2, contributions.ItemSampler.RANDOM
        )
        self.assertEqual(found[1], 0)
        self.assertGreater(found[0], 0.9)

    def test_volumes(self):
        typed_ends = np.array([0.5, 0.5, 0.75, 1.0])  # 1, 3 or 4 words
        law = written(self, ["a", "b"], [0.25, 0.25], typed_ends)
        classes = mean_field.Volumes.of(law)
        self.assertAlmostEqual(classes.shares.sum(), 1)
        # Half of what is typed is of these words.
        self.assertAlmostEqual(
            float(classes.shares @ classes.means), (0.5 + 3 / 4 + 1) / 2
        )


class CoverageTest(absltest.TestCase):
    def test_everything_is_covered_without_privacy(self):
        words = [first + second for first in "abcdef" for second in "ghij"]
        law = written(self, words, [1 / len(words)] * len(words), np.eye(1, 10, 9)[0])

        def found(epsilon, max_prefixes):
            algorithm = mean_field.MeanField(
                law,
                parameters_lib.LdpTrieHHParameters(
                    cohort_size=10_000,
                    max_depth=2,
                    max_prefixes=max_prefixes,
                    contribution_bound=5,
                    epsilon=epsilon,
                    num_passes=2,
                    sampler=contributions.ItemSampler.RANDOM,
                ),
                alphabet_lib.Alphabet(string.ascii_lowercase),
            )
            return mean_field.run(algorithm, seed=1).found

        everything = found(np.inf, 24)
        np.testing.assert_allclose(mean_field.coverage(law, everything, 2), [0, 1])
        # Half of the prefixes a pass: the second pass finds the others.
        both = found(np.inf, 12)
        first = [word for word in both if word.pass_number == 1]
        self.assertAlmostEqual(mean_field.coverage(law, first, 2)[-1], 0.5, delta=0.1)
        self.assertAlmostEqual(mean_field.coverage(law, both, 2)[-1], 1.0, delta=0.1)
        self.assertLess(len(found(0.1, 12)), 24)


if __name__ == "__main__":
    absltest.main()
