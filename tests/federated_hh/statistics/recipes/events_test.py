"""Tests of what devices store, and of its truth: against laws and enumerations."""

import collections
import os

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.statistics.analyses import joint
from federated_hh.statistics.devices import ground_truth
from federated_hh.statistics.recipes import contents, events
from tests.federated_hh.statistics import cases


class EventsTest(absltest.TestCase):
    def test_words_that_no_recipe_can_name_are_unknown(self):
        names = ["i", "root", "got", "null", "home"]
        rows = [("a", [[4, 5, 6], [7, 1]]), ("b", [[8, 4]])]
        path = os.path.join(self.create_tempdir().full_path, "text")
        stored = events.NGramEvents.of(
            client_text.ClientText.from_rows(path, rows),
            vocabulary_lib.Vocabulary(names),
            2,
            seed=1,
        )
        unknown = contents.NULL
        texts = ["i null", "null got", "got", "null null", "null", "home i", "i"]
        self.assertEqual(
            [row[3] for row in stored.rows()],
            [text.replace("null", unknown) for text in texts],
        )
        self.assertEqual(stored.words, ("i", "got", "home"))
        for word in set(names) - set(stored.words):
            with self.assertRaises(contents.ContentError):
                contents.PrefixTree.of({"tree": {"root": []}, "tokens": [word]})

    def test_first_events(self):
        stored = cases.stored(50)
        first = stored.first(2)
        for i in range(50):
            begin, end = stored.splits[i : i + 2]
            mine = slice(*first.splits[i : i + 2])
            kept = slice(begin, min(end, begin + 2))
            np.testing.assert_array_equal(first.grams[mine], stored.grams[kept])
            np.testing.assert_array_equal(first.seconds[mine], stored.seconds[kept])
        self.assertEqual(first.num_devices, 50)
        self.assertIs(first.ages, stored.ages)

    def test_ages_have_their_law_and_go_with_lengths(self):
        lengths = np.random.default_rng(1).normal(size=40_000)
        ages = events._ages(lengths, 3)
        shares = np.bincount(ages // 10, minlength=8)[1:] / 40_000
        np.testing.assert_allclose(shares, events.AGE_SHARES, atol=0.01)
        older = ages[lengths > 0.5].mean() - ages[lengths < -0.5].mean()
        self.assertGreater(older, 10)
        self.assertEqual(set(ages % 10), set(range(10)))

    def test_mean_lengths_are_of_known_words(self):
        words = np.array([0, 1, events.UNKNOWN, 1, events.UNKNOWN], np.int32)
        found = events._mean_lengths(words, np.array([0, 3, 4, 5]), ["a", "bcd"])
        np.testing.assert_array_equal(found, [2, 3, 0])

    def test_seconds_are_typing_and_pauses(self):
        seconds = events._seconds(np.arange(50_001) * 4, 5)
        self.assertGreater(seconds.min(), 0)
        # Typing ends far below a minute, and half of the log-normal pauses above 20 s.
        above = (seconds > events.PAUSE_LAW[0]).mean()
        self.assertAlmostEqual(above, events.PAUSE_SHARE / 2, delta=0.002)
        median = np.median(seconds)
        self.assertBetween(median, 0.6, 0.66)
        devices = np.log(seconds).reshape(-1, 4)
        means = np.median(devices, axis=1)
        self.assertGreater(means.std(), 0.35)  # 0.25 to 0.3 if devices were alike


class TruthTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 3)
    def test_holders_are_counted(self, length):
        stored = cases.stored(200)
        groups, names = joint.ages_of(stored)
        expected, with_ages = collections.Counter(), collections.Counter()
        for i in range(200):
            rows = stored.grams[slice(*stored.splits[i : i + 2]), :length].tolist()
            mine = {
                " ".join(stored.words[word] for word in row)
                for row in rows
                if min(row) >= 0
            }
            expected.update(mine)
            age = joint.AGES.name(joint.AGES.cell(int(stored.ages[i])))
            with_ages.update((gram, age) for gram in mine)
        for found, truth in (
            (ground_truth.Holders.of(stored, length), expected),
            (ground_truth.Holders.of(stored, length, groups, names), with_ages),
        ):
            self.assertEqual(found.counts, dict(truth))
            values = list(found.counts.values())
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(list(found.ranks.values()), list(range(1, len(truth) + 1)))

    def test_seconds_are_of_a_device_then_an_event(self):
        stored = cases.stored(40)
        truth = ground_truth.Seconds.of(stored)
        points = np.array([0.0, 0.3, 0.5, 1.0, 2.25])
        for point, share in zip(points, truth.at(points), strict=True):
            of_devices = [
                (stored.seconds[slice(*stored.splits[i : i + 2])] < point).mean()
                for i in range(40)
            ]
            self.assertAlmostEqual(share, np.mean(of_devices))
        median = truth.quantiles(np.array([0.5]))[0]
        self.assertLess(truth.at(np.array([median]))[0], 0.5)
        self.assertGreaterEqual(truth.at(np.array([np.nextafter(median, 99)]))[0], 0.5)


if __name__ == "__main__":
    absltest.main()
