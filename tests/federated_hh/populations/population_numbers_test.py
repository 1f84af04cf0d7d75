"""Tests of the numbers of a population, against a count by hand and plain loops."""

import collections
import statistics

import numpy as np
from absl.testing import absltest

from federated_hh.populations import population_numbers


def _rows(clients):
    entries = [entry for client in clients for entry in client]
    return population_numbers.Rows(
        np.array([word for word, _ in entries]),
        np.array([count for _, count in entries]),
        np.concatenate(([0], np.cumsum([len(client) for client in clients]))),
    )


class NumbersTest(absltest.TestCase):
    def test_by_hand(self):
        found = population_numbers.Numbers(
            _rows([[(0, 3), (1, 1)], [(0, 1)], [(2, 2), (0, 1), (5, 1)]])
        ).values()
        self.assertEqual(found["distinct words of all"], 4)
        self.assertAlmostEqual(found["words of a client, mean"], 3)
        self.assertEqual(found["words of a client, median"], 4)
        self.assertAlmostEqual(found["distinct words of a client, mean"], 2)
        # 3 * 2 of 4 * 3, 0 of 0 and 2 * 1 of 4 * 3.
        self.assertAlmostEqual(found["two words of a client are the same"], 8 / 24)
        self.assertAlmostEqual(found["times that a holder has a word"], 9 / 6)

    def test_against_loops(self):
        rng = np.random.default_rng(1)
        clients = [
            [
                (int(word), int(rng.geometric(0.6)))
                for word in rng.choice(3_000, rng.integers(1, 60), False, None)
            ]
            for _ in range(300)
        ]
        found = population_numbers.Numbers(_rows(clients)).values()
        totals = collections.Counter()
        holders = collections.Counter()
        for client in clients:
            totals.update(dict(client))
            holders.update(word for word, _ in client)
        top = sum(count for _, count in totals.most_common(70))
        name = "share of the 70 most frequent words"
        self.assertAlmostEqual(found[name], top / totals.total())
        words = [sum(count for _, count in client) for client in clients]
        self.assertEqual(found["words of a client, median"], statistics.median(words))
        self.assertAlmostEqual(
            found["words of a client, sd of the logarithm"],
            statistics.pstdev(np.log(words).tolist()),
        )
        edge = np.quantile([holders[w] for c in clients for w, _ in c], 0.25)
        rarest = [n for c in clients for w, n in c if holders[w] <= edge]
        self.assertAlmostEqual(
            found["times, of the rarest quarter"], statistics.mean(rarest)
        )

    def test_errors_of_means(self):
        rng = np.random.default_rng(2)
        clients = [[(0, int(n))] for n in rng.integers(1, 50, 400)]
        numbers = population_numbers.Numbers(_rows(clients))
        counts = [client[0][1] for client in clients]
        expected = statistics.pstdev(counts) / 20
        # A standard deviation of 200 resamples is off by 5% (one standard error).
        found = numbers.errors(rng)["words of a client, mean"]
        self.assertAlmostEqual(found / expected, 1, delta=0.25)

    def test_clients_without_words(self):
        with self.assertRaisesRegex(ValueError, "no client has words"):
            population_numbers.Numbers(_rows([[(0, 1)], []]))


if __name__ == "__main__":
    absltest.main()
