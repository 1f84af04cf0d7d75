"""Tests that a word list is cut once, and again when something that decides changes."""

import pathlib
from unittest import mock

from absl.testing import absltest

from federated_hh.files import verified_files
from federated_hh.populations import population
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import kept_words


class KeptWordsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.cache = self.directory / "cache"
        self.list = self.directory / "list.txt"
        self.list.write_text("(sun)\t4\nmoon, star\t3\nhttp://x.y\t2\ncafé\t1\n")

    def _prepare(self, **options):
        """Returns the population, and how often the word list was cut for it."""
        options = population_options.PopulationOptions(
            **{"num_clients": 300, "common_words": str(self.list)} | options
        )
        cut = kept_words.KeptWords.of
        with mock.patch.object(kept_words.KeptWords, "of", side_effect=cut) as counted:
            prepared = population.prepare(options, self.cache)
        return prepared, counted.call_count

    def test_what_is_kept(self):
        prepared, _ = self._prepare()
        self.assertEqual(prepared.words.to_pylist(), ["moon", "star", "sun"])
        (about,) = (self.cache / "word-lists" / "derived").glob("*-about.bin")
        self.assertIn(
            '"dropped": {"tokenizer": 2.0, "out_of_alphabet": 1.0}', about.read_text()
        )

    def test_cut_once_for_all_that_it_decides(self):
        first, cut = self._prepare()
        self.assertEqual(cut, 1)
        second, cut = self._prepare(seed=1)
        self.assertEqual(cut, 0)
        self.assertNotEqual(first.fingerprint, second.fingerprint)
        self.assertEqual(second.metadata["missing_characters"], {"é": 1})
        with mock.patch.object(
            kept_words.KeptWords, "find_or_make", side_effect=lambda *a: a[2]()
        ):
            self.cache = self.directory / "other"
            anew, cut = self._prepare(seed=1)
        self.assertEqual(cut, 1)
        self.assertEqual(second.fingerprint, anew.fingerprint)

    def test_cut_again_when_something_changes(self):
        self._prepare()
        known = self.directory / "known.txt"
        known.write_text("sun\n")
        for options in (
            {"tokenizer": "triehh"},
            {"alphabet": "nomrats"},
            {"known_words": str(known)},
            {"only_words": str(known)},
            {"common_law": "pitman_yor"},
        ):
            with self.subTest(**options):
                _, cut = self._prepare(**options)
                self.assertEqual(cut, 1)
        self.list.write_text("sun\t4\n")
        prepared, cut = self._prepare()
        self.assertEqual((prepared.words.to_pylist(), cut), (["sun"], 1))

    def test_damage_is_told(self):
        self._prepare()
        (codes,) = (self.cache / "word-lists" / "derived").glob("*-codes.bin")
        codes.write_bytes(b"\1\0\0\0" * 3)
        with self.assertRaisesRegex(verified_files.DamagedFileError, codes.name):
            self._prepare(seed=1)


if __name__ == "__main__":
    absltest.main()
