"""Tests of central training as a user runs it."""

import json
import pathlib
import shutil

import pandas as pd
from absl.testing import absltest

from federated_hh.populations import vocabulary
from tests import forked_programs
from training.baselines import ngram_files
from training.central import options as pretrain_options
from training.federated import initial_model
from training.models import metric_names
from training.text import text_record

_SIZES = ("--vocabulary_size=50", "--num_units=6", "--embedding_size=4")
_WORDS = "you see the time like we do not what it is for me and all of them"


class PretrainTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        lines = "".join(f"u{user},{_WORDS}\n" for user in range(20))
        (self.scratch / "a.csv").write_text("user,text\n" + lines)

    def pretrain(self, name, *flags):
        return forked_programs.run(
            *("training.pretrain", *_SIZES),
            f"--population_cache={self.scratch / name}-cache",
            f"--output_dir={self.scratch / name}",
            *flags,
            directory=self.scratch,
        )

    def test_what_it_leaves(self):
        done = self.pretrain(
            "public",
            "--population=a.csv",
            *("--num_steps=30", "--checkpoint_every=10", "--batch_size=4"),
            *("--learning_rate=0.05", "--num_held_out_clients=4"),
            "--model_average=0.5",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        public = self.scratch / "public"
        statement = json.loads((public / "privacy.json").read_text())
        self.assertEqual(statement["guarantees"], [])
        metrics = pd.read_csv(public / "simulator" / "metrics.csv")
        self.assertEqual(metrics["steps"].tolist(), [10, 20, 30])
        # One sentence, again and again: learned from the start.
        self.assertLess(metrics["held_out_loss"].iloc[-1], 2)
        page = (public / "report.html").read_text()
        for text in (
            "16 sentences of 16 clients",
            "exponential moving average of all steps' models",
            "interpolated trigram",
            "Kneser-Ney trigram",
            "Nothing.",
        ):
            self.assertIn(text, page)

        first = initial_model.read(public / "model")
        record = text_record.TextRecord.read(public, first.fingerprint)
        [text] = record.texts
        self.assertEqual((text.num_clients, text.num_sentences), (16, 16))
        self.assertLen(record.ids, 16)
        self.assertLen(record.windows, 3)
        words = vocabulary.Vocabulary.of_language(50)
        counted = ngram_files.read(public / "model", words)
        self.assertEqual(tuple(counted), metric_names.NGRAMS)
        others = vocabulary.Vocabulary([*words.words[1:], "other"])
        for wrong in (others, vocabulary.Vocabulary.of_language(49)):
            with self.assertRaisesRegex(
                ValueError, "ngrams.npz.*: they have 54 tokens.* and the model has"
            ):
                ngram_files.read(public / "model", wrong)

        # Pretraining that goes on from it with other text has seen both.
        lines = "".join(f"v{user},{_WORDS}\n" for user in range(9))
        (self.scratch / "b.csv").write_text("user,text\n" + lines)
        done = self.pretrain(
            "second",
            "--population=b.csv",
            "--initial_model=public/model",
            *("--num_steps=1", "--num_held_out_clients=4"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        second = self.scratch / "second"
        facts = json.loads((second / "simulator" / "facts.json").read_text())
        self.assertEqual(facts["initial_text"]["record"], record.digest)
        self.assertFalse(facts["initial_text_is_of_others"])
        for name, is_said in (("public", False), ("second", True)):
            page = (self.scratch / name / "report.html").read_text()
            self.assertEqual("seen the held-out clients" in page, is_said)
        weights = initial_model.read(second).fingerprint
        second = text_record.TextRecord.read(second, weights)
        self.assertEqual([one.num_clients for one in second.texts], [16, 5])
        self.assertLen(second.ids, 21)
        self.assertTrue(second.is_whole)

        # What a private run begins with: of the end, and of any checkpoint.
        shutil.rmtree(public / "model")
        last = initial_model.read(public)
        self.assertEqual(first.fingerprint, last.fingerprint)
        self.assertEqual(
            first.vocabulary_fingerprint,
            vocabulary.Vocabulary.of_language(50).fingerprint,
        )


class PretrainOptionsTest(absltest.TestCase):
    def test_steps(self):
        options = pretrain_options.PretrainOptions(batch_size=10, num_epochs=2.5)
        self.assertEqual(options.steps_of(100), 25)
        self.assertEqual(options.steps_of(1), 1)
        options = pretrain_options.PretrainOptions(num_steps=7)
        self.assertEqual(options.steps_of(10**9), 7)
        options = pretrain_options.PretrainOptions(num_epochs=1e4)
        with self.assertRaisesRegex(ValueError, "num_epochs=10000.0 of 100,000,000 se"):
            options.steps_of(10**8)
        with self.assertRaisesRegex(ValueError, "num_epochs=1.0 and num_steps=7: give"):
            pretrain_options.PretrainOptions(num_steps=7, num_epochs=1.0)
        # Once through all, if nothing is said.
        options = pretrain_options.PretrainOptions(batch_size=10)
        self.assertEqual(options.steps_of(100), 10)
        with self.assertRaisesRegex(ValueError, "num_epochs=1.0 of 1,000,000,000,0"):
            options.steps_of(10**12)


if __name__ == "__main__":
    absltest.main()
