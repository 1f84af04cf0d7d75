"""Tests of runs that begin with a model: a user's steps, from run to run."""

import json
import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest

from federated_hh.populations import vocabulary
from tests import forked_programs
from training.federated import initial_model
from training.models import model

_FLAGS = (
    "--vocabulary_size=50",
    "--num_units=6",
    "--embedding_size=4",
    "--num_held_out_clients=4",
    "--cohort_size=4",
    "--num_rounds=2",
    "--noise_multiplier=0.5",
    "--allow_useless_noise",
    "--allow_unknown_words",
    "--clip_norm=0.5",
    "--num_blocks=1",
    "--nodiurnal",
    "--timer_hours=0",
)


class RunTrainingFromModelTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        lines = [f"u{user},you see the time like we do\n" for user in range(20)]
        (self.scratch / "a.csv").write_text("user,text\n" + "".join(lines))

    def command(self, name, *flags):
        return [
            *("training.run_training", *_FLAGS),
            f"--population={self.scratch / 'a.csv'}",
            f"--population_cache={self.scratch / 'cache'}",
            f"--output_dir={self.scratch / name}",
            *flags,
        ]

    def start(self, name, *flags, cwd=None):
        command = self.command(name, *flags)
        return forked_programs.Program(*command, directory=cwd or self.scratch)

    def run_training(self, name, *flags):
        command = self.command(name, *flags)
        return forked_programs.run(*command, directory=self.scratch)

    def protected(self, name):
        return json.loads((self.scratch / name / "privacy.json").read_text())[
            "protected"
        ]

    def weights(self, name):
        with np.load(self.scratch / name / "simulator/repeat-000000.npz") as arrays:
            prefix = "state/weights/"
            return {n: arrays[n] for n in arrays.files if n.startswith(prefix)}

    def test_a_run_goes_on_from_the_model_of_another(self):
        # So small a rate that float32 keeps the weights as they were in the beginning.
        still = ("--server_learning_rate=1e-12",)
        done = self.run_training("public", "--initial_bias=public", *still)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("first output bias", self.protected("public"))
        words = vocabulary.Vocabulary.of_language(50)
        first = model.cifg_language_model(
            54, num_units=6, projection_size=4, embedding_size=4
        ).initial_weights(1)
        first = initial_model.with_public_bias(first, words)
        public = self.weights("public")
        for name, array in first.items():
            np.testing.assert_allclose(
                public[f"state/weights/{name}"], array, atol=1e-9
            )

        # A path that is relative, and a run's directory instead of its export.
        # That run's own record says whose text it was, and it is taken anyway.
        refused = self.run_training("refused", "--initial_model=public")
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(
            refused.stderr.splitlines()[-1], "^error: .*the same population.*--allow_"
        )
        self.assertFalse((self.scratch / "refused").exists())
        beginning = ("--initial_model=public", "--compare_with=public")
        beginning += ("--allow_shared_text",)
        done = self.run_training("warm", *beginning, *still)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, array in self.weights("warm").items():
            np.testing.assert_allclose(array, public[name], atol=1e-9)
        facts = self.scratch / "warm" / "simulator" / "facts.json"
        facts = json.loads(facts.read_text())
        path = self.scratch / "public"
        self.assertEqual(facts["initial_model"], initial_model.read(path).fingerprint)
        self.assertTrue(facts["initial_text"]["is_of_same_run"])
        self.assertIn(str(path), self.protected("warm"))
        for name, is_said in (("public", False), ("warm", True)):
            page = (self.scratch / name / "report.html").read_text()
            self.assertEqual("seen the held-out clients" in page, is_said)
        self.assertIn("not counted here", self.protected("warm"))

        # It stands beside the model that it is.
        beside = pd.read_csv(self.scratch / "warm" / "simulator" / "baselines.csv")
        metrics = pd.read_csv(self.scratch / "warm" / "simulator" / "metrics.csv")
        row = beside.set_index("baseline").loc["public"]
        self.assertAlmostEqual(row["loss"], metrics["held_out_loss"].iloc[-1], places=5)
        self.assertIn("its training had epsilon", row["made_of"])

        statement = json.loads((self.scratch / "warm" / "privacy.json").read_text())
        self.assertRegex(
            statement["not_counted"][0], "the same population.* do not hold"
        )

    def test_text_that_a_model_began_with_is_not_forgotten(self):
        lines = "".join(f"v{user},they like to run\n" for user in range(20))
        (self.scratch / "b.csv").write_text("user,text\n" + lines)
        done = forked_programs.run(
            *("training.pretrain", "--population=a.csv", "--output_dir=public"),
            *("--vocabulary_size=50", "--num_units=6", "--embedding_size=4"),
            *("--num_steps=1", "--num_held_out_clients=4"),
            f"--population_cache={self.scratch / 'cache'}",
            directory=self.scratch,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        # One user less is another population, but for the ids.
        fewer = (self.scratch / "a.csv").read_text().replace("u0,", "other,")
        (self.scratch / "c.csv").write_text(fewer)
        on_b, on_c = (f"--population={self.scratch / f'{n}.csv'}" for n in "bc")
        done = self.run_training("private", on_b, "--initial_model=public")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("which share no id", self.protected("private"))
        for first in ("public", "private", "private/model"):
            done = self.run_training("refused", on_c, f"--initial_model={first}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(
                done.stderr.splitlines()[-1],
                f"^error: --initial_model={self.scratch / first}: .*a.csv, and it "
                "shares .* 1[56] of 20 clients' ids",
            )
        # Of what private training has read nothing is known, and that is said.
        lines = "".join(f"w{user},so it was\n" for user in range(20))
        (self.scratch / "d.csv").write_text("user,text\n" + lines)
        planned = self.scratch / "last" / "privacy_planned.json"
        on_d = f"--population={self.scratch / 'd.csv'}"
        self.start("last", on_d, "--initial_model=private").kill_once(planned.exists)
        statement = json.loads(planned.read_text())
        self.assertRegex(statement["not_counted"][0], "whether there was any is not k")

    def test_a_vocabulary_of_another_directory(self):
        # Named from where the run is begun, and from elsewhere when it goes on.
        words = vocabulary.Vocabulary(["you", "see", "the"])
        (self.scratch / "words.txt").write_text(words.to_text())
        long = ("--num_rounds=400", "--checkpoint_every=1")
        process = self.start("words", "--vocabulary=words.txt", *long)
        path = self.scratch / "words"
        process.kill_once((path / "simulator" / "checkpoint.jsonl").exists)
        self.assertIn(f"--vocabulary={self.scratch}/", (path / "flags.txt").read_text())
        (self.scratch / "elsewhere").mkdir()
        process = self.start(
            "words",
            "--vocabulary=../words.txt",
            "--resume",
            *long,
            cwd=self.scratch / "elsewhere",
        )
        goes_on = "Resuming repeat 1 after round"
        killed = process.kill_once(lambda: goes_on in process.errors())
        self.assertIn(goes_on, killed.stderr)

    def test_another_vocabulary_is_refused_before_text_is_prepared(self):
        for first in ("exported", "run"):
            (self.scratch / first).mkdir()
        words = vocabulary.Vocabulary(["you", "see"])
        (self.scratch / "exported" / "vocabulary.txt").write_text(words.to_text())
        facts = self.scratch / "run" / "simulator" / "facts.json"
        facts.parent.mkdir()
        facts.write_text(json.dumps({"vocabulary": words.fingerprint}))
        for first in ("exported", "run"):
            done = self.run_training("refused", f"--initial_model={first}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(
                done.stderr.splitlines()[-1],
                "^error: --initial_model=.* was trained with another vocabulary",
            )
            self.assertFalse((self.scratch / "cache").exists())

    def test_flags_that_do_not_go_together(self):
        for flag in ("--initial_model=x", "--vocabulary=x"):
            done = self.run_training("bad", "--initial_bias=public", flag)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--initial_bias=public cannot be combined with", done.stderr)


if __name__ == "__main__":
    absltest.main()
