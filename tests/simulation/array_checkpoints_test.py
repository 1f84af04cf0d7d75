"""Tests of checkpoints of arrays: whole, matching, the last ones kept."""

import os
import pathlib
import shutil

import numpy as np
from absl.testing import absltest

from randomness import noise_keys
from simulation import array_checkpoints, round_metrics, run_directory

_KEY = noise_keys.NoiseKey.of_seed(1)


class ArrayCheckpointsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "run"

    def _create(self):
        return run_directory.RunDirectory.create(
            self.path, program="p", flags=(), facts={}, noise_key=_KEY
        )

    def _resume(self):
        return run_directory.RunDirectory.resume(
            self.path, program="p", facts={}, noise_key=_KEY
        )

    def _save(self, run, step, keep=2):
        arrays = {"w/a": np.full(3, step, np.float32), "n": np.asarray(step)}
        run.add_metrics(step, round_metrics.RoundMetrics({"step": step}, {}))
        array_checkpoints.save(run, step, {"step": step}, arrays, keep)

    def test_saved_and_loaded(self):
        with self._create() as run:
            self.assertIsNone(array_checkpoints.load(run))
            for step in range(4):
                self._save(run, step)
        with self._resume() as run:
            state, arrays = array_checkpoints.load(run)
            self.assertEqual(state, {"step": 3})
            self.assertEqual(arrays["w/a"].dtype, np.float32)
            np.testing.assert_array_equal(arrays["w/a"], [3, 3, 3])
            self.assertEqual(int(arrays["n"]), 3)
            self.assertEqual(run.metrics()["step"].tolist(), [0, 1, 2, 3])
        self.assertEqual(
            sorted(path.name for path in self.path.glob("simulator/*.npz")),
            ["checkpoint-000000002.npz", "checkpoint-000000003.npz"],
        )

    def _save_and_die(self, path, renames):
        """Saves step 1 in a process that ends just before one of its renames.

        A file appears under its name by being renamed. Returns whether it died.
        """
        child = os.fork()
        if not child:
            rename, left = os.rename, [renames]

            def counted(*paths):
                if not left[0]:
                    os._exit(7)
                left[0] -= 1
                rename(*paths)

            os.rename = counted
            run = run_directory.RunDirectory.resume(
                path, program="p", facts={}, noise_key=_KEY
            )
            array_checkpoints.load(run)
            self._save(run, 1, keep=1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.assertIn(code, (0, 7))
        return code == 7

    def test_killed_at_any_moment(self):
        with self._create() as run:
            self._save(run, 0, keep=1)
        found, died = [], True
        while died:
            path = self.path.with_name(f"killed-{len(found)}")
            shutil.copytree(self.path, path)
            died = self._save_and_die(path, renames=len(found))
            with run_directory.RunDirectory.resume(
                path, program="p", facts={}, noise_key=_KEY
            ) as run:
                state, arrays = array_checkpoints.load(run)
                found.append(state["step"])
                self.assertEqual(int(arrays["n"]), found[-1])
                self.assertLen(run.metrics(), found[-1] + 1)
                array_checkpoints.save(run, 2, {"step": 2}, arrays, keep=1)
                self.assertEqual(array_checkpoints.load(run)[0], {"step": 2})
        # Before the arrays, and between the two files; the last one did not die.
        self.assertEqual(found[:2], [0, 0])
        self.assertEqual(found[-1], 1)

    def test_damage_and_bad_input(self):
        with self._create() as run:
            self._save(run, 1)
            with self.assertRaisesRegex(ValueError, "keep is 0"):
                self._save(run, 2, keep=0)
            path = self.path / "simulator" / "checkpoint-000000001.npz"
            os.truncate(path, 100)
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "000000001.npz cannot be read"
            ):
                array_checkpoints.load(run)
            path.unlink()
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "No such file"
            ):
                array_checkpoints.load(run)


if __name__ == "__main__":
    absltest.main()
