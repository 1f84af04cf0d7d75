"""Tests of vocabularies: ids, files, and where the words come from."""

import gzip
import pathlib

from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations import vocabulary
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options

_SPECIAL = "<pad>\n<oov>\n<bos>\n<eos>\n"


class VocabularyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def test_ids(self):
        words = vocabulary.Vocabulary(["the", "cat"])
        self.assertEqual(words.num_tokens, 6)
        self.assertEqual(words.encode(["cat", "dog", "the", "<pad>"]), [5, 1, 4, 1])
        self.assertEqual(
            [words.token(i) for i in range(6)],
            ["<pad>", "<oov>", "<bos>", "<eos>", "the", "cat"],
        )
        for token_id in (-1, 6):
            with self.assertRaisesRegex(ValueError, "to be in 0..5"):
                words.token(token_id)

    def test_file(self):
        words = vocabulary.Vocabulary(["don't", "köln"])
        path = self.directory / "v.txt.gz"
        path.write_bytes(gzip.compress(words.to_text().encode()))
        again = vocabulary.Vocabulary.read(path)
        self.assertEqual(again.words, words.words)
        self.assertEqual(again.fingerprint, words.fingerprint)
        other = vocabulary.Vocabulary(["köln", "don't"])
        self.assertNotEqual(other.fingerprint, words.fingerprint)

    @parameterized.parameters(
        ("the\ncat\n", "has to begin with the lines <pad>, <oov>, <bos>, <eos>"),
        ("", "has to begin with"),
        (_SPECIAL, "words is empty"),
        (_SPECIAL + "a\nb\na\n", "'a' twice"),
        (_SPECIAL + "a\n\nb\n", "has ''"),
        (_SPECIAL + "a b\n", "has 'a b'"),
        (_SPECIAL + "<oov>\n", "has '<oov>'"),
        (b"\xff\n", ":1: the line is not UTF-8"),
    )
    def test_bad_files(self, contents, regex):
        path = self.directory / "v.txt"
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        with self.assertRaisesRegex(ValueError, f"v.txt.*{regex}"):
            vocabulary.Vocabulary.read(path)

    def test_missing_file(self):
        with self.assertRaisesRegex(verified_files.PopulationError, "No such file"):
            vocabulary.Vocabulary.read(self.directory / "none.txt")

    def test_english(self):
        words = vocabulary.Vocabulary.of_language(1000)
        self.assertLen(words.words, 1000)
        self.assertEqual(words.words[0], "the")
        self.assertContainsSubset({"you", "i", "don't", "because"}, words.words)
        split = sentence_tokenizers.get_sentence_tokenizer("keyboard").split
        self.assertEqual(split(" ".join(words.words)), [list(words.words)])
        for size in (0, 100_001):
            with self.assertRaisesRegex(ValueError, "at least 1 and at most 100000"):
                vocabulary.Vocabulary.of_language(size)

    def test_public_text(self):
        path = self.directory / "public.jsonl"
        path.write_text(
            '{"user": "p", "text": "b a b c"}\n{"user": "q", "text": "d. a, e b"}\n'
        )
        options = population_options.PopulationOptions(source=str(path))
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        # b comes three times, a twice, then c, d, e once each in this order.
        found = vocabulary.Vocabulary.from_public_text(options, tokenizer, 4)
        self.assertEqual(found.words, ("b", "a", "c", "d"))
        with self.assertRaisesRegex(
            ValueError, "5 distinct words, fewer than the vocabulary's 6"
        ):
            vocabulary.Vocabulary.from_public_text(options, tokenizer, 6)
        with self.assertRaisesRegex(ValueError, "size is 0"):
            vocabulary.Vocabulary.from_public_text(options, tokenizer, 0)

    def test_another_language(self):
        words = vocabulary.Vocabulary.of_language(100, "de")
        self.assertEqual(words.words[:4], ("die", "der", "und", "in"))
        self.assertEqual(words.language, "de")
        with self.assertRaisesRegex(ValueError, "list of Vietnamese has .* words"):
            vocabulary.Vocabulary.of_language(100_000, "vi")

    def test_public_text_without_users(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "a.txt").write_text("Der Hund. Der Tag\nder Hund\n")
        (folder / "a.csv").write_text("text\nDer Hund. Der Tag\nder Hund\n")
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        for name in ("a.txt", "a.csv"):
            options = population_options.PopulationOptions(
                source=str(folder / name), language="de"
            )
            words = vocabulary.Vocabulary.from_public_text(options, tokenizer, 2)
            self.assertEqual(words.words, ("der", "hund"))
            self.assertEqual(words.language, "de")


if __name__ == "__main__":
    absltest.main()
