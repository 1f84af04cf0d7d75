"""Tests of other runs' models, against a federated evaluation."""

import json
import pathlib
import shutil

import numpy as np
from absl.testing import absltest

from federated_hh.populations import vocabulary
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import record as run_record
from tests.training import training_test_case as common
from training.baselines import baselines, ngram_files, ngrams, other_models
from training.federated import held_out, initial_model
from training.models import exported_model, model
from training.text import examples, text_record, windows

_WORDS = vocabulary.Vocabulary([f"w{i}" for i in range(common.NUM_TOKENS - 4)])


class OtherModelsTest(common.TrainingTestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.clients = common.random_clients(9, seed=3)
        self.limits = examples.ClientLimits(4, max_words=4, batch_size=2)

    def export(self, name, language_model, length=5, words=_WORDS):
        path = self.scratch / name / "model"
        path.parent.mkdir(exist_ok=True)
        weights = language_model.initial_weights(3)
        exported_model.export(language_model, weights, words, length, path)
        return weights

    def judged(self, *names):
        text = self.text(self.clients)
        who = np.arange(3, 9)
        judges = windows.of_clients(text, who, self.limits, common.NUM_TOKENS)
        paths = [str(self.scratch / name) for name in names]
        return other_models.evaluated(
            paths,
            _WORDS,
            judges,
            self.limits.max_words,
            text,
            (text.fingerprint, "1", "6"),
        )

    def test_judged_as_by_a_federated_evaluation(self):
        # Another size, and more words of a sentence, than the run's own model.
        larger = model.cifg_language_model(
            common.NUM_TOKENS, num_units=7, projection_size=4, embedding_size=3
        )
        given = {"a": (common.small_cifg(), 5), "b": (larger, 9)}
        weights = {name: self.export(name, *of) for name, of in given.items()}
        (self.scratch / "a" / "privacy.json").write_text('{"guarantees": []}')
        statement = {
            "guarantees": [{"epsilon": 8.1919, "delta": 1e-10, "is_upper_bound": True}]
        }
        (self.scratch / "b" / "privacy.json").write_text(json.dumps(statement))
        found, fingerprints = self.judged("a", "b/model")
        self.assertEqual([b.name for b in found], ["a", "b"])
        self.assertIn("no guarantee", found[0].made_of)
        self.assertIn("epsilon 8.2 at delta 1e-10; it is not known", found[1].made_of)
        self.assertLen(set(fingerprints), 2)
        for baseline, (language_model, _) in zip(found, given.values(), strict=True):
            rounds = self.rounds(language_model, self.clients, self.limits)
            expected = rounds.evaluate(weights[baseline.name], np.arange(3, 9))
            self.assertEqual(list(baseline.metrics), list(expected))
            for name, value in expected.items():
                self.assertAlmostEqual(baseline.metrics[name], value, places=5)

    def test_what_cannot_be_compared(self):
        self.export("short", common.small_cifg(), length=4)
        others = vocabulary.Vocabulary(_WORDS.words[::-1])
        self.export("others", common.small_cifg(), words=others)
        cases = (
            ("short", "uses 3 words of a sentence, the run 4"),
            ("others", "another vocabulary .*Run with --vocabulary=.*vocabulary.txt"),
            ("none", "no exported model is there"),
        )
        for name, regex in cases:
            path = self.scratch / name
            with self.assertRaisesRegex(
                ValueError, f"--compare_with={path}: .*{regex}"
            ):
                self.judged(name)

    def test_a_model_that_the_judges_trained(self):
        def record(population, seed):
            path = self.scratch / "a"
            flags = (f"--seed={seed}", "--num_held_out_clients=6")
            flags += ("--max_words=4", "--max_sentences=4")
            run = run_record.new("t", flags, {}, noise_keys.NoiseKey.of_seed(1))
            (path / "run.json").write_text(json.dumps(run))
            (path / "flags.txt").write_text(run_record.flagfile(flags))
            (path / "simulator").mkdir(exist_ok=True)
            facts = json.dumps({"population": population})
            (path / run_record.FACTS_FILE).write_text(facts)

        self.export("a", common.small_cifg())
        own = self.text(self.clients).fingerprint
        for population, seed, told in (
            (own, 1, "nothing is known of a guarantee of its training"),
            ("another", 2, "it is not known whether a held-out client"),
        ):
            record(population, seed)
            [found], _ = self.judged("a")
            self.assertIn(told, found.made_of)
            self.assertEqual("not known" in found.made_of, population == "another")
        record(own, 2)
        regex = "held-out clients trained it. Run with --seed=2 --num_"
        for name in ("a", "a/model"):
            with self.assertRaisesRegex(ValueError, regex):
                self.judged(name)

    def test_a_model_of_text_that_the_judges_wrote(self):
        weights = self.export("a", common.small_cifg())
        read = self.text(self.clients[:2])
        record = text_record.TextRecord.of(read, np.arange(2), common.NUM_TOKENS, "b")
        fingerprint = initial_model.fingerprint(weights)
        record.write(self.scratch / "a" / "model", fingerprint)
        shutil.copytree(self.scratch / "a" / "model", self.scratch / "passed on")
        for name in ("a", "passed on"):
            [found], _ = self.judged(name)
            self.assertRegex(
                found.made_of, "shares with .* 2 of 9 clients' ids.* flatter the model$"
            )
        record.write(self.scratch / "a" / "model", "another")
        with self.assertRaisesRegex(ValueError, "is of a model whose weights"):
            self.judged("a")

    def test_ngrams_that_came_along(self):
        self.export("a", common.small_cifg())
        self.export("b", common.small_cifg())
        text = self.text(self.clients)
        who, size = np.arange(3), common.NUM_TOKENS
        clients = held_out.Clients(who, np.arange(3, 9))
        models = baselines.ngrams_of(text, clients, self.limits, size)
        ngram_files.write(models, _WORDS, self.scratch / "b" / "model")
        judges = windows.of_clients(text, np.arange(3, 9), self.limits, size)
        paths = [str(self.scratch / name) for name in ("a", "b", "nothing")]
        found = other_models.evaluated_ngrams(
            [*paths, f"{paths[1]}/model"], judges, _WORDS
        )
        self.assertLen(found, 4)
        for baseline, model_ in zip(found, models.values(), strict=True):
            self.assertIn(", text of b", baseline.name)
            self.assertEqual(baseline.metrics, ngrams.metrics(model_, judges))
        (self.scratch / "b" / "model" / ngram_files.FILE).write_bytes(b"PK")
        with self.assertRaisesRegex(ValueError, "ngrams.npz.* cannot be read"):
            other_models.evaluated_ngrams(paths, judges, _WORDS)

    def test_names(self):
        self.export("a", common.small_cifg())
        (self.scratch / "c").mkdir()
        (self.scratch / "a").rename(self.scratch / "c" / "a")
        self.export("a", common.small_cifg())
        found, _ = self.judged("a", "c/a")
        self.assertEqual([b.name for b in found], [f"{self.scratch.name}/a", "c/a"])


if __name__ == "__main__":
    absltest.main()
