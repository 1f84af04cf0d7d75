"""Tests of preparing sentences: made once, found again, regenerated when needed."""

import os
import pathlib

from absl.testing import absltest

from federated_hh.files import verified_files
from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from tests import ROOT

_SHARED = ROOT.parent / "shared" / "data"


class ClientSentencesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.cache = self.directory / "cache"
        self.source = self.directory / "a.csv"
        self.source.write_text('user,text\nann,"See you. Soon"\nbob,?\ncy,you\n')
        self.vocabulary = vocabulary.Vocabulary(["you", "see"])

    def _prepare(self, words=None, tokenizer=None, language=None, **options):
        options = population_options.PopulationOptions(
            **{"source": str(self.source)} | options
        )
        tokenizer = tokenizer or sentence_tokenizers.get_sentence_tokenizer("keyboard")
        with self.assertLogs(level="INFO") as logs:
            text = client_sentences.prepare(
                options, words or self.vocabulary, tokenizer, self.cache, language
            )
        return text, "\n".join(logs.output)

    def test_made_once(self):
        text, log = self._prepare()
        self.assertRegex(log, r"Preparing the population in \S+\.$")
        self.assertEqual([text.client(0), text.client(1)], [[[5, 4], [1]], [[4]]])
        self.assertEqual(text.metadata["clients_without_sentences"], 1)
        again, log = self._prepare()
        self.assertIn("Using the population", log)
        self.assertEqual(again.directory, text.directory)
        # Words of the same file are another population, and no reason for this one.
        population.prepare(
            population_options.PopulationOptions(source=str(self.source)), self.cache
        )
        _, log = self._prepare(tokenizer=self._tokenizer("other"))
        self.assertIn("option sentence_tokenizer changed", log)
        self.assertNotIn("alphabet", log)

    def test_clients_without_sentences(self):
        kept, _ = self._prepare(empty_clients="keep")
        self.assertEqual([kept.client(i) for i in range(3)], [[[5, 4], [1]], [], [[4]]])
        dropped, _ = self._prepare()
        self.assertEqual(dropped.client_ids.to_pylist(), ["ann", "cy"])
        # Where nobody is without, all is as it was before they could be kept.
        self.source.write_text('user,text\nann,"See you. Soon"\ncy,you\n')
        synthetic = {"source": "synthetic", "num_clients": 200, "seed": 4}
        for options, expected in (
            ({}, "b5e75a79595e95"),
            (synthetic, "612ca50f157831"),
        ):
            for choice in ("keep", "drop"):
                text, _ = self._prepare(empty_clients=choice, **options)
                self.assertStartsWith(text.fingerprint, expected)
                self.assertEqual(text.keeps_empty_clients, choice == "keep")

    def test_resampled(self):
        def prepare(clients, words=None, **options):
            chosen = population_options.ResamplingOptions(clients, words)
            with self.assertLogs(level="INFO") as logs:
                text = client_sentences.prepare(
                    population_options.PopulationOptions(
                        source=str(self.source), **options
                    ),
                    self.vocabulary,
                    sentence_tokenizers.get_sentence_tokenizer("keyboard"),
                    self.cache,
                    resampling=chosen,
                )
            return text, "\n".join(logs.output)

        people, _ = self._prepare()
        text, log = prepare(500)
        self.assertEqual((text.num_clients, text.people.num_clients), (500, 2))
        self.assertEqual(text.people.directory, people.directory)
        self.assertIn("Preparing the population", log)
        self.assertEqual({len(text.client(i)) for i in range(500)}, {1, 2})
        again, log = prepare(500, 80)
        self.assertNotIn("Preparing", log)
        self.assertEqual(again.directory, text.directory)
        for options in ({"words": 1}, {"seed": 2}):
            other, _ = prepare(500, **options)
            self.assertNotEqual(other.fingerprint, text.fingerprint)
        self.assertEqual({len(prepare(500, 1)[0].client(i)) for i in range(9)}, {1})
        same, _ = prepare(None)
        self.assertEqual(same.fingerprint, people.fingerprint)
        with self.assertRaisesRegex(ValueError, "resampled_words=5.* give .*clients"):
            population_options.ResamplingOptions(resampled_words=5)

    def _tokenizer(self, name):
        return sentence_tokenizers.SentenceTokenizer(name, lambda text: [text.split()])

    def test_changes_are_noticed(self):
        first, _ = self._prepare()
        for log, words, options in (
            ("option vocabulary changed", vocabulary.Vocabulary(["see", "you"]), {}),
            ("option max_bad_rows changed", None, {"max_bad_rows": 3}),
        ):
            text, found = self._prepare(words, **options)
            self.assertIn(log, found)
            self.assertNotEqual(text.directory, first.directory)
        with self.source.open("a") as file:
            file.write("dan,see\n")
        text, log = self._prepare()
        self.assertIn("source changed", log)
        self.assertEqual(text.num_clients, 3)

    def test_synthetic(self):
        options = {"source": "synthetic", "num_clients": 200, "seed": 4}
        text, log = self._prepare(**options)
        self.assertRegex(log, r"Preparing the population in \S+\.$")
        self.assertEqual(text.num_clients, 200)
        self.assertIn("synthetic-sentences-200-", text.directory)
        # "you" and "see" are two of the language's words, the others are unknown.
        self.assertEqual(set(text.tokens.tolist()), {1, 4, 5})
        again, _ = self._prepare(**options, max_bad_rows=3)  # of files only
        self.assertEqual(again.directory, text.directory)
        weaker = population_options.LanguageOptions(context_strength=0.1)
        other, log = self._prepare(language=weaker, **options)
        self.assertIn("option context_strength changed (0.7 -> 0.1)", log)
        self.assertNotEqual(other.directory, text.directory)
        _, log = self._prepare(**options | {"seed": 5})
        self.assertIn("option seed changed (4 -> 5)", log)
        too_many = population_options.LanguageOptions(context_words=10**6)
        kept = sorted(os.listdir(self.cache))
        with self.assertRaisesRegex(ValueError, "context_words is 1000000"):
            self._prepare(language=too_many, **options)
        self.assertEqual(sorted(os.listdir(self.cache)), kept)

    def test_nothing_is_kept_of_what_fails(self):
        def meddle(text):
            os.utime(self.source, ns=(1, 1))
            return [[text]]

        tokenizer = sentence_tokenizers.SentenceTokenizer("meddling", meddle)
        with self.assertRaisesRegex(verified_files.PopulationError, "changed while"):
            self._prepare(tokenizer=tokenizer)
        self.source.write_text("user,text\nann,?\n")
        with self.assertRaisesRegex(
            verified_files.PopulationError, "a.csv: the population is empty"
        ):
            self._prepare()
        with self.assertRaisesRegex(verified_files.PopulationError, "no file"):
            self._prepare(source=str(self.directory / "none.csv"))
        self.assertEmpty(os.listdir(self.cache))

    def test_blogs(self):
        path = _SHARED / "blog-authorship" / "posts-00-of-16.jsonl.xz"
        if not path.exists():
            self.skipTest(f"{path} is not there")
        words = vocabulary.Vocabulary.of_language(10_000)
        text, _ = self._prepare(words, source=str(path))
        # A sixteenth of 19,320 bloggers with 2,741 words each.
        self.assertBetween(text.num_clients, 1000, 1400)
        self.assertBetween(text.num_tokens / text.num_clients, 2400, 3200)
        self.assertBetween(text.num_tokens / text.num_sentences, 8, 20)
        known = (text.tokens >= len(vocabulary.SPECIAL_TOKENS)).mean()
        self.assertBetween(known, 0.85, 0.97)


if __name__ == "__main__":
    absltest.main()
