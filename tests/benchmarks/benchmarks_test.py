"""Tests that benchmarks still run, on sizes too small to say anything."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from benchmarks import engine_workloads
from federated_hh.files import tables
from tests import ROOT, forked_programs


class BenchmarksTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            "encoding",
            "--parameters=1000 --repeats=1 --results_dir=results",
            "rotated, q = 10",
        ),
        (
            "ldp_triehh",
            "--study_scale=0 --num_clients=100000 --mean_words_per_client=20 "
            "--max_depth=2 --devices=100 --single_devices=5 --results_dir=results",
            "NumPy, report by report",
        ),
        (
            "randomizers",
            "--repeats=1 --most_one_by_one=10000 --client_reports=100 "
            "--results_dir=results",
            "sum_of_reports",
        ),
        # Of one size each, so that nothing is projected.
        (
            "scale",
            "--cohorts=1000 --trained=2 --num_units=4 --actors=1 --memory_rounds=2 "
            "--results_dir=results",
            "after_rounds",
        ),
        (
            "compare_runtimes",
            "--num_clients=10000 --num_rounds=1 --training_clients=2 --num_units=4",
            "evaluation",
        ),
        (
            "fault_trials",
            "--trials=1 --clients=2 --num_units=4 --slice_timeout=5 "
            "--results_dir=results",
            "the same sum",
        ),
        (
            "reading",
            "--num_rows=500 --num_users=50 --num_repeats=1 --results_dir=results",
            "plain Python",
        ),
        ("noise", "--parameters=1000 --rounds=1", "BLT, 2 buffers"),
        (
            "secure_sum",
            "--sums=10:0:16:32,8:4:5:64 --results_dir=results",
            "server_cpu_seconds",
        ),
        (
            "statistics",
            "--real_devices=300 --vectorised_devices=10000 --results_dir=results",
            "the whole query",
        ),
        (
            "two_servers",
            "--reports=272:100 --results_dir=results",
            "refused",
        ),
        (
            "triehh",
            "--num_clients=5000 --devices=5 --rounds=1",
            "plain Python, no TFF",
        ),
    )
    def test_it_runs(self, name, flags, shown):
        done = forked_programs.run(
            "tests.benchmarks.smaller",
            name,
            *flags.split(),
            directory=self.create_tempdir().full_path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(shown, done.stdout)

    @parameterized.parameters(
        ("actor killed", (3, signal.SIGKILL)),
        ("TFF worker killed", (4, signal.SIGKILL)),
        ("actor stopped", (3, signal.SIGSTOP)),
        ("TFF worker stopped", (4, signal.SIGSTOP)),
        ("node removed", None),
    )
    def test_what_fails_in_a_trial(self, kind, killed):
        # A real one fails in the benchmark's run.
        self.assertIn(kind, engine_workloads.FAULTS)
        remove_node = mock.Mock()
        with mock.patch.object(os, "kill") as kill:
            engine_workloads.fault(kind, (3, 4), remove_node)()
        self.assertEqual(
            [call.args for call in kill.call_args_list], [killed] if killed else []
        )
        self.assertEqual(remove_node.call_count, int(not killed))

    def run_training(self, flags, directory):
        done = forked_programs.run(
            "benchmarks.training", *flags.split(), directory=directory
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_part_of_training_is_kept_where_asked_for(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        self.run_training(
            "--parts=clients --timed_jobs=1 --timed_divisor=100 --timed_repeats=1 "
            "--timed_ways=ours --results_dir=results",
            directory,
        )
        kept = directory / "results"
        self.assertCountEqual(
            [path.name for path in kept.iterdir()],
            ["clients.csv", "about_clients.json"],
        )
        clients = tables.read(kept / "clients.csv")
        self.assertEqual(clients["way"].tolist(), ["ours"])
        self.assertGreater(clients["wall_seconds_per_client"].min(), 0)

    def test_rounds_on_one_core_and_on_two(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        self.run_training(
            "--parts=threads --timed_divisor=100 --thread_repeats=1 "
            "--results_dir=results",
            directory,
        )
        kept = directory / "results"
        seconds = tables.read(kept / "threads.csv").set_index("cores").wall_seconds
        about = json.loads((kept / "about_threads.json").read_text())
        if 2 in seconds:
            self.assertAlmostEqual(
                about["summary"]["two cores to one"],
                seconds[1] / seconds[2],
                delta=1e-4,
            )

    def test_memory_of_the_large_model_over_rounds(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        shown = self.run_training(
            "--parts=large_memory --memory_cohort=1 --memory_rounds=2 "
            "--mean_words_per_client=16",
            directory,
        )
        self.assertIn("\nlarge_memory_over_rounds\n", shown)
        self.assertIn('"large model, 1 clients: mean GiB of the last 10 rounds"', shown)
        self.assertEmpty([*directory.iterdir()])

    @parameterized.parameters(
        ("noise", "--rounds=0", "--rounds=0: has to be an integer"),
        ("noise", "--rounds=x", "--rounds=x: has to be a whole number"),
        ("scale", "--cohorts=abc", "cohorts has 'abc'; it has to be"),
        ("scripts.document_tables", "--nope", "Unknown command line flag 'nope'"),
    )
    def test_a_wrong_flag_is_one_line(self, name, flag, told):
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                name if "." in name else f"benchmarks.{name}",
                flag,
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 2)
        self.assertStartsWith(done.stderr, f"error: {told}")
        self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    absltest.main()
