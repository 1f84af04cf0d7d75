"""Tests of simulated clients who have the sentences of people."""

import collections
import itertools
import os
import pathlib

import numpy as np
from absl.testing import absltest
from scipy import stats

from federated_hh.populations.columns import client_text, resampled_text

# Sentences of 1, 2, 3 words; of none; of 9 words and of 1; of 4 words.
_ROWS = [
    ("ann", [[10], [11, 11], [12, 12, 12]]),
    ("bob", []),
    ("cy", [[20] * 9, [21]]),
    ("dan", [[30] * 4]),
]


class ResampledTextTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.people = client_text.ClientText.from_rows(self.directory / "p", _ROWS)
        self._number = itertools.count()

    def draw(self, num_clients, people=None, max_words=4, seed=1):
        people = people or self.people
        directory = self.directory / f"drawn-{next(self._number)}"
        with client_text.new_text(directory) as partial:
            resampled_text.draw(
                partial,
                people,
                num_clients=num_clients,
                max_words=max_words,
                seed=seed,
                metadata={},
            )
        return resampled_text.ResampledText.open_with(directory, people)

    def test_law(self):
        text = self.draw(24_000)
        persons = np.bincount(text.person_of, minlength=4)
        self.assertGreater(stats.chisquare(persons).pvalue, 1e-6)
        found = collections.defaultdict(collections.Counter)
        for client, person in enumerate(text.person_of.tolist()):
            kinds = tuple(sentence[0] for sentence in text.client(client))
            found[person][kinds] += 1
        # Of six orders: up to the sentence that would exceed four words.
        ann = {(10, 11): 1, (10, 12): 1, (11, 10): 1, (11,): 1, (12, 10): 1, (12,): 1}
        self.assertEqual(found[0].keys(), ann.keys())
        self.assertGreater(stats.chisquare([*found[0].values()]).pvalue, 1e-6)
        self.assertEqual(found[1].keys(), {()})
        self.assertEqual(found[2].keys(), {(20,), (21,)})
        self.assertGreater(stats.chisquare([*found[2].values()]).pvalue, 1e-6)
        self.assertEqual(found[3].keys(), {(30,)})
        # Clients are independent of each other: the next one's person, too.
        pairs = np.histogram2d(text.person_of[:-1], text.person_of[1:], 4)[0]
        self.assertGreater(stats.chi2_contingency(pairs)[1], 1e-6)

    def test_a_seed_gives_the_same_and_holds_no_text(self):
        first, same = self.draw(5000), self.draw(5000)
        self.assertEqual(first.fingerprint, same.fingerprint)
        self.assertNotEqual(first.fingerprint, self.draw(5000, seed=2).fingerprint)
        # More clients than are drawn at once begin with the same ones.
        self.assertEqual(self.draw(30).client(29), first.client(29))
        self.assertEqual(first.column_path("tokens"), self.people.column_path("tokens"))
        self.assertLess(sum(map(os.path.getsize, _files(first))), 5000 * 25)
        # Other text of the same shape is another population.
        rows = [(name, [*of]) for name, of in _ROWS]
        rows[0] = ("ann", [[13], *_ROWS[0][1][1:]])
        other = client_text.ClientText.from_rows(self.directory / "o", rows)
        drawn = self.draw(5000, people=other)
        self.assertEqual(drawn.metadata["fingerprint"], first.metadata["fingerprint"])
        self.assertNotEqual(drawn.fingerprint, first.fingerprint)

    def test_clients_and_their_people(self):
        text = self.draw(300, max_words=100)
        clients = np.array([3, 4, 90])
        numbers, counts = text.used_sentences(clients, 2)
        whole = [text.client(c)[:2] for c in clients.tolist()]
        self.assertEqual(counts.tolist(), [len(one) for one in whole])
        splits, tokens = text.sentence_splits, text.tokens
        found = [tokens[splits[n] : splits[n + 1]].tolist() for n in numbers]
        self.assertEqual(found, [sentence for one in whole for sentence in one])
        self.assertEqual(
            text.people_of(clients).tolist(), sorted({*text.person_of[clients]})
        )
        ids = self.people.client_ids.to_pylist()
        self.assertEqual(
            text.client_ids.to_pylist(), [ids[p] for p in text.person_of.tolist()]
        )
        self.assertTrue(text.keeps_empty_clients)
        most = np.bincount(text.person_of).max()
        self.assertRegex(
            text.about,
            f"each of the 300 has .* of one of 4 people.*for 75.0 clients on average "
            f"and {most} at most.* says nothing about the people",
        )
        self.assertEqual((self.people.about, self.people.people), ("", self.people))

    def test_bad_directories(self):
        text = self.draw(30)
        with self.assertRaisesRegex(ValueError, "holds no resampled sentences|schema"):
            resampled_text.ResampledText.open_with(self.people.directory, self.people)
        fewer = client_text.ClientText.from_rows(self.directory / "f", _ROWS[:1])
        with self.assertRaisesRegex(ValueError, "damaged.*values lie in"):
            resampled_text.ResampledText.open_with(text.directory, fewer)
        os.truncate(text.column_path("sentences"), 4)
        with self.assertRaisesRegex(ValueError, "has 4 bytes"):
            resampled_text.ResampledText.open_with(text.directory, self.people)


def _files(text):
    return pathlib.Path(text.directory).iterdir()


if __name__ == "__main__":
    absltest.main()
