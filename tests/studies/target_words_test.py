"""Tests of the target words against the frequencies that they are chosen by."""

import pathlib

import wordfreq
from absl.testing import absltest, parameterized

from studies import target_words


class TargetWordsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.frequencies = wordfreq.get_frequency_dict("en", wordlist="large")

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
