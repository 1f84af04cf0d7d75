"""Tests of how the benchmark of a client's cost runs its ways."""

import contextlib
import functools
import os
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from benchmarks import training_turns, training_ways
from federated_hh.runtime.worker import startup


def told():
    """Returns how TensorFlow computes in this process."""
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    return (
        os.getpid(),
        tf.config.threading.get_intra_op_parallelism_threads(),
        tf.config.threading.get_inter_op_parallelism_threads(),
        bool(_pywrap_util_port.IsMklEnabled()),
        startup.worker_environment()["TF_ENABLE_ONEDNN_OPTS"],
    )


class WaysTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_what_is_settled_before_tensorflow_starts(self, with_onednn):
        begin = functools.partial(training_turns.settle, with_onednn)
        number, *found = training_turns.in_a_process(told, begin)
        self.assertNotEqual(number, os.getpid())
        self.assertEqual(found, [1, 1, with_onednn, str(int(with_onednn))])

    def test_each_way_trains_the_same_clients(self):
        job = training_ways.Workload("small", 2, 4, (2, 5), 20, 8)
        task = training_ways.task_of(job, self.create_tempdir().full_path)
        sums = []
        for way in training_ways.ways():
            with way.of(task) as train:
                found = train()
            if way.name.startswith("ours"):
                sums.append(np.concatenate([p.ravel() for p in found.parts.values()]))
        self.assertLen(sums, 4)
        for found in sums:
            np.testing.assert_allclose(
                found, sums[0], atol=1e-3 * np.abs(sums[0]).max()
            )

    def test_the_floor_has_the_products_of_forwards_and_backwards(self):
        import tensorflow as tf

        job = training_ways.Workload("small", 1, 3, (2, 2), 20, 8)
        task = training_ways.task_of(job, self.create_tempdir().full_path)
        counted, multiply = [], tf.matmul

        def count(one, other, transpose_a=False, transpose_b=False):
            found = multiply(
                one, other, transpose_a=transpose_a, transpose_b=transpose_b
            )
            shared = one.shape[0] if transpose_a else one.shape[1]
            counted.append(found.shape.num_elements() * shared)
            return found

        with (
            training_ways._products(task) as train,
            mock.patch.object(tf, "matmul", count),
        ):
            train()
        sizes = [
            (96, 24),  # the input to the gates
            (96, 24),  # the last output to the gates
            (8, 96),  # the cell to the output
            (96, 24),  # the output to the tokens
        ]
        places = 3 * 3  # sentences, each of two words and an end
        self.assertEqual(
            counted, [places * one * other for one, other in sizes for _ in range(3)]
        )

    def test_ratios_are_of_rounds_that_followed_one_another(self):
        found = pd.DataFrame(
            {
                "workload": ["a"] * 6,
                "way": ["ours", "pfl-research"] * 3,
                "repeat": [0, 0, 1, 1, 2, 2],
                "cpu_seconds_per_client": [1.0, 2.0, 3.0, 3.0, 4.0, 16.0],
            }
        )
        self.assertEqual(training_turns.ratios(found), {"a": {"ours": 0.5}})
        alone = found[found["way"] == "ours"]
        self.assertEqual(training_turns.ratios(alone), {})


class ThreadsTest(absltest.TestCase):
    def test_cores_take_turns(self):
        cores = sorted(os.sched_getaffinity(0))
        seen = []

        @contextlib.contextmanager
        def trained(task):
            del task
            seen.append(os.sched_getaffinity(0))
            yield lambda: seen.append(None)

        with mock.patch.object(training_ways, "ours", trained):
            job = training_ways.Workload("small", 2, 4, (2, 5), 20, 4)
            found = training_turns.rounds_on_cores(job, 3, "")
        turn = [{*cores[:1]}, None, None]
        if len(cores) > 1:
            turn += [{*cores[:2]}, None, None]
        self.assertEqual(seen, 3 * turn)
        self.assertEqual(
            found["cores"].tolist(), 3 * [1, 2] if len(cores) > 1 else 3 * [1]
        )
        self.assertEqual(os.sched_getaffinity(0), {*cores})

    def test_the_gain_is_that_of_medians(self):
        found = pd.DataFrame(
            {
                "repeat": [0, 0, 1, 1, 2, 2],
                "cores": [1, 2] * 3,
                "wall_seconds": [6.0, 3.0, 60.0, 4.0, 8.0, 0.1],
            }
        )
        gain = training_turns.threads_gain(found)
        np.testing.assert_allclose(list(gain.values()), [8 / 3, 2, 80])
        self.assertEqual(training_turns.threads_gain(found[found["cores"] == 1]), {})


if __name__ == "__main__":
    absltest.main()
