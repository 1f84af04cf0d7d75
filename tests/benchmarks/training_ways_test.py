"""Tests of how the benchmark of a client's cost runs its ways."""

import contextlib
import os
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from benchmarks import training_ways
from federated_hh.runtime.worker import startup

_Process = training_ways._Process


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


class ProcessTest(parameterized.TestCase):
    @parameterized.parameters(
        (_Process.ONE_THREAD, (1, 1, False, "0")), (_Process.ONEDNN, (1, 1, True, "1"))
    )
    def test_what_is_settled_before_tensorflow_starts(self, process, expected):
        with mock.patch.dict(os.environ, TF_ENABLE_ONEDNN_OPTS="0"):
            number, *found = training_ways._in_process(process, told)
        self.assertNotEqual(number, os.getpid())
        self.assertEqual(tuple(found), expected)

    def test_each_way_has_its_process(self):
        for way in training_ways._ways():
            expected = _Process.THIS
            if "TensorFlow, one thread" in way.name:
                expected = _Process.ONE_THREAD
            if "oneDNN" in way.name:
                expected = _Process.ONEDNN
            self.assertIs(way.process, expected, way.name)


class ThreadsTest(absltest.TestCase):
    def test_cores_take_turns(self):
        cores = sorted(os.sched_getaffinity(0))
        seen = []

        @contextlib.contextmanager
        def trained(task):
            del task
            seen.append(os.sched_getaffinity(0))
            yield lambda: seen.append(None)

        with mock.patch.object(training_ways, "_ours", trained):
            found = training_ways.rounds_on_cores(2, 20, 4, 3, "")
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
        gain = training_ways.threads_gain(found)
        np.testing.assert_allclose(list(gain.values()), [8 / 3, 2, 80])
        self.assertEqual(training_ways.threads_gain(found[found["cores"] == 1]), {})


if __name__ == "__main__":
    absltest.main()
