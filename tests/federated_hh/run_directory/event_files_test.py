"""Tests of the files that TensorBoard reads, with TensorBoard's own reader."""

import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from tensorboard.backend.event_processing import event_multiplexer

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import metrics as run_metrics

_KEY = noise_keys.NoiseKey(2**127 + 5, is_secret=True)
_REPEATS, _ROUNDS = 3, 4


def _value(repeat, number):
    return 100.0 * repeat + number


def _metrics(repeat, number):
    return run_metrics.RoundMetrics(
        {"repeat": repeat, "round": number, "kept": _value(repeat, number)},
        {"seconds": 0.5},
    )


class EventFilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "run"

    def run_up_to(self, rounds, *, resume, saved):
        """Runs until so many rounds of all repeats have been, then leaves."""
        run = run_directory.begin_or_resume(
            self.path,
            resume=resume,
            program="p",
            flags=[],
            facts={},
            noise_key=_KEY,
        )
        with run:
            first = run.load_checkpoint() or 0
            for done in range(first, rounds):
                repeat, number = divmod(done, _ROUNDS)
                run.add_metrics(number + 1, _metrics(repeat, number + 1))
                if done + 1 <= saved:
                    run.save_checkpoint(done + 1)

    def curves(self):
        """Returns what TensorBoard shows: points by curve and tag."""
        found = event_multiplexer.EventMultiplexer()
        found.AddRunsFromDirectory(str(self.path / "simulator" / "tensorboard"))
        found.Reload()
        points = {}
        for run, content in found.Runs().items():
            # TensorFlow 2 writes scalars as tensors.
            for tag in content["tensors"]:
                points[run, tag] = [
                    (event.step, float(tf.make_ndarray(event.tensor_proto)))
                    for event in found.Tensors(run, tag)
                ]
        return points

    def expected(self):
        numbers = range(1, _ROUNDS + 1)
        expected = {}
        for repeat in range(_REPEATS):
            kept = [(number, _value(repeat, number)) for number in numbers]
            expected[f"repeat_{repeat}", "released/kept"] = kept
            seconds = [(number, 0.5) for number in numbers]
            expected[f"repeat_{repeat}", "simulator/seconds"] = seconds
        return expected

    def test_each_repeat_is_a_curve_of_the_same_tags(self):
        self.run_up_to(_REPEATS * _ROUNDS, resume=False, saved=0)
        self.assertEqual(self.curves(), self.expected())

    def test_a_resumed_run_has_each_point_once(self):
        # Killed within a repeat and at a repeat's end; rounds that were not saved are
        # run again.
        for killed, saved in ((6, 5), (9, 8), (10, 8)):
            resume = self.path.exists()
            self.run_up_to(killed, resume=resume, saved=saved)
        self.run_up_to(_REPEATS * _ROUNDS, resume=True, saved=12)
        self.assertEqual(self.curves(), self.expected())
        # TensorBoard hides some of what is there twice; the files have it once.
        folder = self.path / "simulator" / "tensorboard"
        tags = [
            value.tag
            for file in folder.glob("*/*")
            for event in tf.compat.v1.train.summary_iterator(str(file))
            for value in event.summary.value
        ]
        self.assertLen(tags, 2 * _REPEATS * _ROUNDS)

    def test_a_file_that_cannot_be_written_is_named(self):
        error = tf.errors.ResourceExhaustedError(None, None, "no space left")
        events = run_metrics.EventFiles(self.path)
        with (
            mock.patch.object(tf.summary, "create_file_writer", side_effect=error),
            self.assertRaisesRegex(
                run_directory.RunDirectoryError, "repeat_2 cannot be written: no space"
            ),
        ):
            events.add(1, _metrics(2, 1))
        events.close()


if __name__ == "__main__":
    absltest.main()
