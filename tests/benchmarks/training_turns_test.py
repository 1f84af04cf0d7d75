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
