"""Tests that a run on real text has noise that its seed does not tell."""

import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest

from tests import forked_programs

# Only for what hangs.
_TIMEOUT_SECONDS = 600
_SMALL = (
    "--seed=5",
    "--vocabulary_size=50",
    "--num_units=3",
    "--embedding_size=2",
    "--max_words=4",
    "--max_sentences=2",
    "--num_held_out_clients=2",
    "--cohort_size=3",
    "--num_rounds=2",
    "--noise_multiplier=1",
    "--allow_useless_noise",
    "--allow_unknown_words",
    "--clip_norm=0.5",
    "--adaptive_clip",
    "--clipped_count_stddev=2",
    "--evaluate_every=1",
    "--timer_hours=0",
    "--nodiurnal",
    "--num_blocks=1",
)


class RunTrainingKeyTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        table = self.scratch / "a.csv"
        lines = [f"u{i % 10},see you {i} times in the time.\n" for i in range(20)]
        table.write_text("user,text\n" + "".join(lines))
        self.table = table

    def _run(self, name, *flags):
        """Runs the program; returns its directory, metrics and last checkpoint."""
        path = self.scratch / name
        done = forked_programs.run(
            *("training.run_training", *_SMALL, *flags),
            *(f"--population={self.table}", f"--output_dir={path}"),
            f"--population_cache={self.scratch / 'cache'}",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = pd.read_csv(path / "simulator/metrics.csv")
        with np.load(path / "simulator/repeat-000000.npz") as arrays:
            return path, metrics, dict(arrays)

    def test_one_seed_has_other_noise_in_each_run_and_a_key_repeats_it(self):
        path, metrics, state = self._run("first")
        key = path / "secret/noise_key"
        _, other_metrics, other = self._run("second")
        _, same_metrics, same = self._run("third", f"--noise_key_file={key}")

        pd.testing.assert_frame_equal(metrics, same_metrics, check_exact=True)
        self.assertEqual(state.keys(), same.keys())
        for name, array in state.items():
            np.testing.assert_array_equal(array, same[name], err_msg=name)

        # The same clients were asked, so what differs is the noise.
        name = "sampler_state/table/participations"
        np.testing.assert_array_equal(state[name], other[name])
        for name in ("output_embedding", "projection"):
            name = f"state/weights/{name}"
            self.assertFalse(np.any(state[name] == other[name]), name)
        for name in ("update_norm", "tracked_norm", "held_out_loss"):
            self.assertFalse(np.any(metrics[name] == other_metrics[name]), name)


if __name__ == "__main__":
    absltest.main()
