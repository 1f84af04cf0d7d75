"""Tests of the target words against the frequencies that they are chosen by."""

import pathlib

from absl.testing import absltest, parameterized

from federated_hh.populations import population
from federated_hh.populations.languages import languages
from federated_hh.populations.options import population_options
from studies.sun_2024 import target_words


class TargetWordsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.frequencies = languages.words()

    @parameterized.parameters((0.05, None), (0.5, None), (0.01, 20_000), (0.05, 50_000))
    def test_targets_are_the_rarest_words_of_the_share(self, share, size):
        words = sorted(self.frequencies, key=self.frequencies.get, reverse=True)
        vocabulary = words[:size]
        known = set(target_words.known_words(share, size))
        targets = [word for word in vocabulary if word not in known]
        self.assertContainsSubset(words[len(vocabulary) :], known)
        total = sum(self.frequencies[word] for word in vocabulary)
        mass = sum(self.frequencies[word] for word in targets) / total
        # Of the rarest words as many as fit, and the one on the edge.
        edge = self.frequencies[targets[0]] / total
        self.assertBetween(mass, share - 1e-9, share + edge + 1e-9)
        rarest_known = min(
            self.frequencies[word] for word in vocabulary if word in known
        )
        self.assertGreaterEqual(rarest_known, self.frequencies[targets[0]])

    def test_file_is_made_once(self):
        directory = pathlib.Path(self.create_tempdir().full_path) / "new"
        path = pathlib.Path(target_words.known_words_file(directory, 0.5, 1_000))
        words = path.read_text().splitlines()
        self.assertEqual(words, target_words.known_words(0.5, 1_000))
        changed = path.stat().st_mtime_ns
        self.assertEqual(
            target_words.known_words_file(directory, 0.5, 1_000), str(path)
        )
        self.assertEqual(path.stat().st_mtime_ns, changed)
        other = target_words.known_words_file(directory, 0.4, 1_000)
        self.assertNotEqual(other, str(path))

    def _typed(self):
        rows = [("ann", "the", 50), ("bob", "the", 36), ("bob", "Sun", 4)]
        rows += [("bob", "moon", 5), ("ann", "moon", 1), ("ann", "star", 4)]
        rows += [("cid", "lol", 1), ("cid", "comet", 1), ("ann", "urllink", 999)]
        text = "".join(f"{u}\t{w}\t{n}\n" for u, w, n in rows)
        return population.prepare(
            population_options.PopulationOptions(
                source=self.create_tempfile("typed.tsv", text).full_path,
                format="word_counts",
                tokenizer="whitespace",
            ),
            self.create_tempdir().full_path,
        )

    @parameterized.parameters(
        # Of 101 dictionary words typed, comet is 1, Sun and star are 4 each, moon is 6.
        (0.01, ["comet"]),
        (0.05, ["Sun", "comet"]),
        (0.1, ["star", "Sun", "comet"]),
        (0.2, ["moon", "star", "Sun", "comet"]),
    )
    def test_seldom_typed(self, share, expected):
        dictionary = {"the", "sun", "moon", "star", "comet", "planet"}
        found = target_words.seldom_typed(self._typed(), dictionary, share)
        self.assertEqual(found, expected)

    def test_seldom_typed_file(self):
        directory = self.create_tempdir().full_path
        words = self.create_tempfile("dictionary", "the\nsun\nmoon\ncomet\n")
        path = target_words.seldom_typed_file(
            directory, self._typed(), words.full_path, 0.1
        )
        self.assertEqual(pathlib.Path(path).read_text(), "Sun\ncomet\n")
        words.write_text("the\nmoon\n")
        other = target_words.seldom_typed_file(
            directory, self._typed(), words.full_path, 0.1
        )
        self.assertEqual(pathlib.Path(other).read_text(), "moon\n")

    @parameterized.parameters((0.0, "is 0.0"), (1.0, "is 1.0"), (1e-4, "no word"))
    def test_nothing_is_seldom(self, share, message):
        with self.assertRaisesRegex(ValueError, message):
            target_words.seldom_typed(self._typed(), {"the", "moon"}, share)

    @parameterized.parameters(
        (0.0, None, "target_share is 0.0"),
        (1.0, None, "target_share is 1.0"),
        (0.05, 0, "vocabulary_size is 0"),
        (0.05, 10**9, "vocabulary_size is 1000000000"),
    )
    def test_bad_arguments(self, share, size, message):
        with self.assertRaisesRegex(ValueError, message):
            target_words.known_words(share, size)


if __name__ == "__main__":
    absltest.main()
