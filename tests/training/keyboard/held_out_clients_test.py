"""Tests of the choice of held-out clients, and of a comparison's errors and files."""

import pathlib
import shutil

import numpy as np
from absl.testing import absltest

from federated_hh.files import tables
from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from training.baselines import baselines, ngram_files, ngrams
from training.federated import held_out, initial_model
from training.keyboard import comparison as keyboard_comparison
from training.keyboard import held_out_clients as held_out_lib
from training.keyboard import options as keyboard_options
from training.models import exported_model, metric_names, model
from training.models import finished_runs as keyboard_runs
from training.text import examples, windows

_WORDS = ("the", "to", "and", "of", "don't")


def _options(**changes):
    return keyboard_options.EvaluationOptions(**{"model": ("m",), **changes})


class JudgesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)
        self.words = vocabulary.Vocabulary(_WORDS)
        random = np.random.default_rng(0)
        rows = [
            (f"c{i}", [random.integers(4, 9, 5).tolist() for _ in range(4)])
            for i in range(12)
        ]
        self.rows = rows
        self.text = client_text.ClientText.from_rows(self.path / "text", rows)
        self.run = self._run("run")

    def _run(self, name, program="training.run_training", text=None, **changes):
        flags = {
            "seed": "3",
            "num_held_out_clients": "4",
            "max_sentences": "2",
            "max_words": "4",
        }
        return keyboard_runs.TrainingRun(
            self.path / name,
            flags | changes,
            (text or self.text).fingerprint,
            program,
        )

    def test_those_held_out_judge_and_the_others_are_counted(self):
        found = held_out_lib.choose(_options(), [self.run], self.text, self.words, 1)
        clients = held_out.Clients.split(12, 4, 3)
        np.testing.assert_array_equal(found.clients, clients.held_out)
        counts = np.ones(9)
        for client in clients.training:
            for sentence in self.rows[client][1][:2]:
                for token in sentence[:4]:
                    counts[token] += 1
        counts[0] = 0
        np.testing.assert_allclose(
            found.prior.probabilities, counts / counts.sum(), atol=1e-12
        )
        self.assertEqual(
            list(found.baselines),
            list(metric_names.NGRAMS),
        )

    def test_public_prior(self):
        for judges, runs in (("held_out", [self.run]), ("all", [])):
            found = held_out_lib.choose(
                _options(judges=judges, prior="public"), runs, self.text, self.words, 1
            )
            np.testing.assert_allclose(
                found.prior.probabilities,
                initial_model.public_probabilities(self.words),
            )
        self.assertEqual(found.clients.tolist(), list(range(12)))

    def test_the_prior_of_words_that_nobody_published(self):
        text = client_text.ClientText.from_rows(self.path / "other", self.rows[:5])
        options = _options(judges="all", prior="public")
        words = vocabulary.Vocabulary(["the", "to", "xqzzt", "of", "don't"])
        found = held_out_lib.choose(options, [self.run], text, words, 1)
        notes = " ".join(found.notes)
        self.assertIn("1 of the 5 words are not in its English list ('xqzzt'", notes)
        self.assertIn("(run keeps none, as federated runs do)", notes)
        found = held_out_lib.choose(options, [self.run, self.run], text, words, 1)
        self.assertIn("(run, run keep none, as federated runs do)", found.notes[0])
        words = vocabulary.Vocabulary(["the", "xqzzta", "xqzzt", "xqzztb", "to"])
        with self.assertRaisesRegex(
            ValueError, "prior is public.*Give judges=held_out"
        ):
            held_out_lib.choose(options, [], text, words, 1)

    def test_the_run_whose_population_judges(self):
        chat = self._run("chat", "training.pretrain")
        other = self._run("other")
        for runs, expected in (
            ([None, chat, self.run, other], self.run),
            ([chat, None], chat),
            ([None], None),
        ):
            self.assertIs(keyboard_runs.who_holds_out(runs), expected)

    def test_a_model_of_public_text_says_nothing_of_who_judges(self):
        other = client_text.ClientText.from_rows(self.path / "public", self.rows[:5])
        public = self._run("chat", "training.pretrain", other, seed="9")
        for runs in ([self.run, public], [public, self.run]):
            found = held_out_lib.choose(_options(), runs, self.text, self.words, 1)
            alone = held_out_lib.choose(
                _options(), [self.run], self.text, self.words, 1
            )
            self.assertEqual(found.clients.tolist(), alone.clients.tolist())
            self.assertIn("model of chat is of another", " ".join(found.notes))
        # Of the same text it has to have held out the same clients.
        central = self._run("central", "training.pretrain", seed="9")
        with self.assertRaisesRegex(ValueError, "central differ in population, seed"):
            held_out_lib.choose(
                _options(), [self.run, central], self.text, self.words, 1
            )

    def test_nobody_judges_who_trained(self):
        other = client_text.ClientText.from_rows(self.path / "other", self.rows[:5])
        for options, runs, text, message in (
            (_options(), [], self.text, "none belongs to a run"),
            (_options(), [self.run], other, "the population is not that of the run"),
            (
                _options(),
                [self.run, self._run("b", seed="4")],
                self.text,
                "run and .*b differ in population, seed",
            ),
            (
                _options(judges="all"),
                [self.run],
                self.text,
                "clients of this population trained .*run",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                held_out_lib.choose(options, runs, text, self.words, 1)
        held_out_lib.choose(_options(judges="all"), [self.run], other, self.words, 1)

    def test_runs_that_held_out_others_have_no_judges_in_common(self):
        other = client_text.ClientText.from_rows(self.path / "other", self.rows[:5])
        for of_other in (
            {"text": other},
            {"seed": "4"},
            {"num_held_out_clients": "2"},
        ):
            another = self._run("another", **of_other)
            for runs in ([self.run, another], [another, self.run]):
                with (
                    self.subTest(of_other, first=runs[0].path.name),
                    self.assertRaisesRegex(ValueError, "differ in|is not that of"),
                ):
                    held_out_lib.choose(_options(), runs, self.text, self.words, 1)

    def test_of_many_clients_some_judge(self):
        def judges(seed, **options):
            return held_out_lib.choose(
                _options(max_judges=3, **options),
                [] if options else [self.run],
                self.text,
                self.words,
                seed,
            ).clients.tolist()

        self.assertLess(set(judges(1)), set(held_out.Clients.split(12, 4, 3).held_out))
        drawn = [judges(seed, judges="all") for seed in range(200)]
        for some in drawn:
            self.assertEqual(some, sorted(set(some)))
            self.assertLen(some, 3)
        counts = np.bincount(np.concatenate(drawn), minlength=12)
        # Each of 12 in a quarter of 200 draws.
        self.assertTrue(np.all(np.abs(counts - 50) < 5 * np.sqrt(200 * 3 / 16)))

    def _export(self, name, words=_WORDS, length=5):
        network = model.cifg_language_model(
            4 + len(words), num_units=3, projection_size=2, embedding_size=2
        )
        exported_model.export(
            network,
            network.initial_weights(0),
            vocabulary.Vocabulary(words),
            length,
            self.path / name / "model",
        )
        return str(self.path / name)

    def _compare(self, models, compose=(), touch_stddev=0.4, **options):
        return keyboard_comparison.Comparison.of(
            models,
            self.text,
            _options(judges="all", **options),
            keyboard_options.TouchOptions(touch_stddev=touch_stddev),
            keyboard_options.UserOptions(),
            keyboard_options.ComposeOptions(lowest_threshold=0.05, **dict(compose)),
            seed=1,
        )

    def _written(self, comparison):
        """Returns what a comparison prints, and the scores that it writes."""
        with run_directory.RunDirectory.create(
            self.path / "out",
            program="t",
            flags=(),
            facts={},
            noise_key=noise_keys.NoiseKey.of_seed(1),
        ) as directory:
            printed = comparison.write(directory)
        return printed, tables.read(self.path / "out" / "simulator" / "scores.csv")

    def test_a_comparison(self):
        paths = [self._export("a", length=5), self._export("b", length=4) + "/model"]
        models = keyboard_comparison.Models.read(paths)
        self.assertEqual(list(models.by_name), ["a", "b"])
        self.assertEqual((models.max_words, models.max_sentences(7)), (3, 7))
        printed, scores = self._written(self._compare(models))
        by_model = scores.pivot(index="metric", columns="model", values="value")
        # The two have the same weights, and look at sentences that are as long.
        np.testing.assert_allclose(by_model["a"], by_model["b"], rtol=1e-6)
        self.assertTrue(np.all(scores["low"].dropna() <= scores["high"].dropna()))
        # Intervals are of the same judges drawn, so that a difference is the models'.
        for bound in ("low", "high"):
            of = scores.pivot(index="metric", columns="model", values=bound).dropna()
            np.testing.assert_allclose(of["a"], of["b"], rtol=1e-6)
        curve = tables.read(self.path / "out" / "simulator" / "smart_compose.csv")
        self.assertEqual(set(curve["model"]), set(by_model.columns))
        self.assertIn("| one suggestion | ", printed)
        page = (self.path / "out" / "report.html").read_text()
        for text in (held_out_lib.PUBLIC, "Keyboard: QWERTY", "it is not known"):
            self.assertIn(text, page)

    def test_what_the_decoder_knows_already_re_ranks_nothing(self):
        models = keyboard_comparison.Models.read([self._export("a")])
        _, scores = self._written(self._compare(models, touch_stddev=3.0))
        of_metric = scores.pivot(index="metric", columns="model", values="value")
        before, after = (
            of_metric.loc[f"word_modified_{when}"] for when in ("before", "after")
        )
        self.assertEqual(before["a"], before[held_out_lib.PUBLIC])
        self.assertGreater(before["a"], 0.1)
        self.assertEqual(after[held_out_lib.PUBLIC], before["a"])
        self.assertNotEqual(after["a"], before["a"])

    def test_a_picked_rate_that_the_lowest_threshold_is_above(self):
        models = keyboard_comparison.Models.read([self._export("a")])
        for wanted, is_said in ((0.001, True), (1.0, False)):
            compose = {"compose_picked_rate": wanted}
            comparison = self._compare(models, compose)
            # Who is sure of anything at all is right now and then.
            _, scores = self._written(comparison)
            page = (self.path / "out" / "report.html").read_text()
            shutil.rmtree(self.path / "out")
            self.assertEqual("picked more often than the 0.1% wanted" in page, is_said)
            rates = scores[scores["metric"] == "compose_picked_rate"]["value"]
            self.assertEqual(bool((rates > wanted).any()), is_said)

    def _trained(self, name, text, clients):
        """A run whose model came with n-grams of its clients' text."""
        run_directory.RunDirectory.create(
            self.path / name,
            program="training.pretrain",
            flags=[f"--{key}={value}" for key, value in self.run.flags.items()],
            facts={"population": text.fingerprint},
            noise_key=noise_keys.NoiseKey.of_seed(1),
        ).close()
        path = self._export(name)
        limits = examples.ClientLimits(2, 4)
        counted = baselines.ngrams_of(text, clients, limits, 9)
        words = vocabulary.Vocabulary(_WORDS)
        ngram_files.write(counted, words, self.path / name / "model")
        return path, counted

    def test_ngrams_of_the_text_of_models(self):
        other = client_text.ClientText.from_rows(self.path / "other", self.rows[:5])
        split = held_out.Clients.split(12, 4, 3)
        private, _ = self._trained("private", self.text, split)
        public, counted = self._trained(
            "public", other, held_out.Clients.split(5, 1, 3)
        )
        copy = self.path / "passed_on"
        shutil.copytree(self.path / "public" / "model", copy)
        models = keyboard_comparison.Models.read(
            [private, f"{public}/model", str(copy)]
        )
        comparison = keyboard_comparison.Comparison.of(
            models,
            self.text,
            _options(),
            keyboard_options.TouchOptions(),
            keyboard_options.UserOptions(),
            keyboard_options.ComposeOptions(),
            seed=1,
        )
        # Those of the private text are counted anyway, and the public ones come once.
        of_public = [f"{name}, text of public" for name in metric_names.NGRAMS]
        self.assertEqual(
            list(comparison.predictors),
            ["private", "public", "passed_on", *metric_names.NGRAMS, *of_public],
        )
        _, scores = self._written(comparison)
        scores = scores.set_index(["model", "metric"])["value"]
        limits = examples.ClientLimits(2, 4)
        judges = windows.of_clients(self.text, split.held_out, limits, 9)
        for name, model_ in zip(of_public, counted.values(), strict=True):
            for metric, value in ngrams.metrics(model_, judges).items():
                self.assertAlmostEqual(scores[name, metric], value, places=6)
        page = (self.path / "out" / "report.html").read_text()
        self.assertIn("N-grams of the text of a model came along", page)
        (copy / ngram_files.FILE).write_bytes(b"PK")
        with self.assertRaisesRegex(ValueError, "ngrams.npz.* cannot be read"):
            self._compare(keyboard_comparison.Models.read([str(copy)]))

    def test_models_of_different_vocabularies(self):
        paths = [self._export("a"), self._export("c", (*_WORDS[:4], "a"))]
        with self.assertRaisesRegex(ValueError, "c have different vocabularies"):
            keyboard_comparison.Models.read(paths)
        with self.assertRaisesRegex(ValueError, "a/model twice"):
            keyboard_comparison.Models.read([f"{paths[0]}/model", paths[0]])


if __name__ == "__main__":
    absltest.main()
