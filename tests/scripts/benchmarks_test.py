"""Tests that benchmarks still run, on sizes too small to say anything."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest, parameterized

from tests import forked_programs

_ROOT = pathlib.Path(__file__).parents[2]


class BenchmarksTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            "benchmark_accounting",
            "--repeats=1 --num_reports=1000 --num_rounds=20",
            "51",
        ),
        (
            "benchmark_encoding",
            "--parameters=1000 --repeats=1 --results_dir=results",
            "rotated, q = 10",
        ),
        (
            "benchmark_ldp_triehh",
            "--study_scale=0 --num_clients=100000 --mean_words_per_client=20 "
            "--devices=100 --single_devices=5 --results_dir=results",
            "NumPy, report by report",
        ),
        (
            "benchmark_population",
            "--num_clients=200 --num_repeats=1 --results_dir=results",
            "as many distinct",
        ),
        (
            "benchmark_randomizers",
            "--repeats=1 --most_one_by_one=10000 --client_reports=100 "
            "--results_dir=results",
            "sum_of_reports",
        ),
        # Of one size each, so that nothing is projected.
        (
            "benchmark_scale",
            "--cohorts=1000 --trained=2 --num_units=4 --actors=1 --memory_rounds=2 "
            "--results_dir=results",
            "after_rounds",
        ),
        (
            "compare_runtimes",
            "--num_clients=10000 --num_rounds=2 --training_clients=4 --num_units=8",
            "evaluation",
        ),
        (
            "fault_trials",
            "--trials=2 --clients=4 --num_units=4 --slice_timeout=5 "
            "--results_dir=results",
            "the same sum",
        ),
        ("benchmark_noise", "--parameters=1000 --rounds=1", "BLT, 2 buffers"),
        (
            "benchmark_reading",
            "--num_rows=2000 --num_users=100 --num_repeats=1 --results_dir=results",
            "ours, parquet",
        ),
        (
            "benchmark_secure_sum",
            "--sums=10:0:16:32,8:4:5:64 --results_dir=results",
            "server_cpu_seconds",
        ),
        (
            "benchmark_selection",
            "--num_clients=10000 --cohort_size=1000 --num_repeats=1 "
            "--results_dir=results",
            "read, in NumPy",
        ),
        (
            "benchmark_sfp",
            "--clients=2000 --most_looped=500 --fragments=2 --results_dir=results",
            "2000",
        ),
        (
            "benchmark_statistics",
            "--real_devices=300 --vectorised_devices=10000 --results_dir=results",
            "the whole query",
        ),
        (
            "benchmark_two_servers",
            "--reports=272:100 --results_dir=results",
            "refused",
        ),
        (
            "benchmark_training",
            "--parts=clients --timed_clients=1 --timed_words=10 --timed_repeats=1",
            "plain TensorFlow",
        ),
        (
            "benchmark_triehh",
            "--num_clients=5000 --devices=5 --rounds=1",
            "plain Python, no TFF",
        ),
    )
    def test_it_runs(self, name, flags, shown):
        done = forked_programs.run(
            f"scripts.{name}",
            *flags.split(),
            directory=self.create_tempdir().full_path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(shown, done.stdout)

    @parameterized.parameters(
        ("benchmark_noise", "--rounds=0", "--rounds=0: has to be an integer"),
        ("benchmark_noise", "--rounds=x", "--rounds=x: has to be a whole number"),
        ("benchmark_scale", "--cohorts=abc", "cohorts has 'abc'; it has to be"),
        ("document_tables", "--nope", "Unknown command line flag 'nope'"),
    )
    def test_a_wrong_flag_is_one_line(self, name, flag, told):
        done = subprocess.run(
            [sys.executable, "-P", "-m", f"scripts.{name}", flag],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 2)
        self.assertStartsWith(done.stderr, f"error: {told}")
        self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    absltest.main()
