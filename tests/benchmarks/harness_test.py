"""Tests of the benchmarks' harness: files, their record, and how a case ends."""

import dataclasses
import json
import pathlib
import sys
from unittest import mock

import pandas as pd
from absl import flags
from absl.testing import absltest

from benchmarks import harness
from federated_hh.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(harness.Options):
    harness_test_size: int = option(1, "A size.", least=1, most=9)
    results_dir: str = harness.results_dir("benchmark_test")


_SCRATCH = []


def _measure(options, run):
    _SCRATCH.append(pathlib.Path(run.scratch))
    run.about["data"] = "nothing"
    pathlib.Path(run.scratch, "kept").touch()
    run.show("cost", pd.DataFrame({"size": [options.harness_test_size / 3]}), digits=2)
    return "the sums differ" if options.harness_test_size == 2 else None


class HarnessTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.case = harness.Case(_Options, _measure)

    @classmethod
    def tearDownClass(cls):
        for name in ("harness_test_size", "results_dir"):
            delattr(flags.FLAGS, name)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path, "results")

    def run_case(self, size):
        given = ["case", f"--harness_test_size={size}", f"--results_dir={self.folder}"]
        self.case.parse(given)
        with mock.patch.object(sys, "argv", given):
            self.case.main([])

    def test_a_case_leaves_tables_and_how_they_were_made(self):
        self.run_case(1)
        self.assertFalse(_SCRATCH[-1].exists())
        self.assertEqual((self.folder / "cost.csv").read_text(), "size\n0.33\n")
        about = json.loads((self.folder / "about.json").read_text())
        self.assertEqual(about["data"], "nothing")
        self.assertEndsWith(about["command"], " --harness_test_size=1")
        self.assertContainsSubset(
            ["commit", "machine", "load_average", "versions"], about
        )

    def test_a_case_that_fails_says_so_and_keeps_its_tables(self):
        with self.assertRaises(SystemExit) as caught:
            self.run_case(2)
        self.assertEqual(caught.exception.code, "error: the sums differ")
        names = {path.name for path in self.folder.iterdir()}
        self.assertEqual(names, {"cost.csv", "about.json"})

    def test_options_are_checked(self):
        with self.assertRaisesRegex(ValueError, "harness_test_size=10"):
            _Options(harness_test_size=10)


if __name__ == "__main__":
    absltest.main()
