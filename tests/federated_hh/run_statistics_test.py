"""Tests of the program of interactive statistics as a user runs it."""

import json
import os
import pathlib
import subprocess
import sys

import pandas as pd
from absl.testing import absltest

import federated_hh
from simulation import tables

_SMALL = (
    "--num_clients=3000",
    "--mean_words_per_client=10",
    "--num_tokens=30",
    "--context_words=30",
    "--epsilon=2",
    "--ngram_words=2",
)


def _run(*flags):
    root = pathlib.Path(federated_hh.__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-P", "-m", "federated_hh.run_statistics", *flags],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
    )


class RunStatisticsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    def test_from_flags_to_report(self):
        path = self.scratch / "run"
        done = _run(
            *_SMALL,
            self.cache,
            f"--output_dir={path}",
            "--cohorts=everybody",
            "--show_device_log=7",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = tables.read(path / "ngrams.csv")
        self.assertEqual(
            found.columns.tolist(), ["words", "ngram", "estimate", "stderr", "share"]
        )
        self.assertIn("the", found["ngram"].tolist())
        self.assertEqual(set(found["words"]), {1, 2})
        against = tables.read(path / "simulator" / "ngrams.csv")
        # An estimate counts devices that report an n-gram, so no more than hold it.
        ones = against[against["words"] == 1]
        self.assertTrue(
            (ones["estimate"] < ones["true_holders"] + 5 * ones["stderr"]).all()
        )
        metrics = pd.read_csv(path / "metrics.csv")
        self.assertEqual(metrics["reports"].tolist(), [3000, 3000])
        self.assertEqual(metrics["aggregate_epsilon"].tolist(), [1.0, 1.0])
        log = tables.read(path / "simulator" / "device_log.csv")
        self.assertEqual(log["outcome"].tolist(), ["answered", "answered"])
        self.assertEqual(log["device"].tolist(), [7, 7])
        self.assertEqual(log["minimum_cohort"].tolist(), [*metrics["minimum_cohort"]])
        self.assertIn("The log of device 7", done.stdout)
        privacy = json.loads((path / "privacy.json").read_text())
        self.assertEqual(privacy["guarantees"][0]["epsilon"], 2.0)
        self.assertAlmostEqual(privacy["guarantees"][0]["delta"], 2e-6)
        local = sum(metrics["local_epsilon"])
        self.assertAlmostEqual(privacy["guarantees"][1]["epsilon"], local)
        page = (path / "report.html").read_text()
        for text in ("The queries", "The log of device 7", "Against the truth"):
            self.assertIn(text, page)

    def test_two_servers_add_up_who_stays(self):
        path = self.scratch / "shared"
        done = _run(
            *_SMALL,
            self.cache,
            f"--output_dir={path}",
            "--cohorts=everybody",
            "--aggregation=two_servers",
            "--drop_out=0.05",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = pd.read_csv(path / "metrics.csv")
        total = metrics["reports"] + metrics["refused"]
        self.assertEqual(total.tolist(), [3000, 3000])
        # Six standard deviations of 150.
        self.assertTrue((metrics["refused"] - 150).abs().lt(72).all())
        self.assertIn("the", tables.read(path / "ngrams.csv")["ngram"].tolist())
        privacy = json.loads((path / "privacy.json").read_text())
        self.assertIn("do not collude", " ".join(privacy["assumptions"]))

    def test_bad_flags_are_one_line(self):
        for flags, message in (
            (("--epsilon=0.0000001",), "--epsilon"),
            (("--strategy=static", "--num_tokens=300"), "cells at once"),
            (("--show_device_log=1", "--devices=vectorised"), "--show_device_log"),
            (("--aggregation=two_servers", "--devices=vectorised"), "--devices=real"),
            (("--drop_out=0.1",), "--aggregation=two_servers"),
            (("--aggregation=two_servers", "--drop_out=1"), "--drop_out"),
            ((*_SMALL, self.cache, "--show_device_log=3000"), "--show_device_log"),
        ):
            done = _run(*flags, f"--output_dir={self.scratch / 'bad'}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr.splitlines()[-1])


if __name__ == "__main__":
    absltest.main()
