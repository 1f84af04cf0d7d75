"""Tests of the TFF runtime: ranges of secure sums, and the life of the worker."""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.runtime import runtime
from tests import ROOT

# Imports TFF once, then forks a program for each way to end, and reports as JSON
# whether its worker was alive before and ended after.
_SCENARIOS = """
import json, os, signal, sys, time
import numpy as np, psutil
from federated_hh.runtime import runtime
import tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def total(values):
    return tff.federated_secure_sum(values, 10)

def program(scenario, write):
    # Whoever started the tests may have had SIGINT ignored.
    ignored = scenario == "sigint_ignored"
    handler = signal.SIG_IGN if ignored else signal.default_int_handler
    signal.signal(signal.SIGINT, handler)
    with runtime.tff_worker() as worker:
        assert total([1, 2, 3]) == 6
        os.write(write, str(worker.process.pid).encode())
        os.close(write)
        if scenario == "exception":
            raise ArithmeticError("on purpose")
        if scenario.startswith("SIG"):
            time.sleep(60)

def ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

for scenario in sys.argv[1:]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        program(scenario, write)
        sys.exit()
    os.close(write)
    with os.fdopen(read) as pipe:
        worker = int(pipe.read())
    if scenario.startswith("SIG"):
        assert not ended(worker)
        os.kill(child, signal.Signals[scenario])
    _, status = os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while not ended(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    result = [scenario, os.waitstatus_to_exitcode(status), ended(worker)]
    print(json.dumps(result), flush=True)
"""

_PIPED = """
import numpy as np
from federated_hh.runtime import runtime
import tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def total(values):
    return tff.federated_secure_sum(values, 10)

runtime.set_default_worker()
print(total([1, 2, 3]))
"""


def _environment() -> dict[str, str]:
    root = str(ROOT)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _secure_sum(dtype, bound):
    @tff.federated_computation(tff.FederatedType(dtype, tff.CLIENTS))
    def total(values):
        return tff.federated_secure_sum(values, bound)

    return total


@tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.int64, [2]), tff.CLIENTS)
)
def _bitwidth_sum(values):
    return tff.federated_secure_sum_bitwidth(values, 62)


class SecureSumTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())

    def test_adds_up_to_the_bound(self):
        self.assertEqual(_secure_sum(np.int64, 10)([0, 10, 3]), 13)

    def test_structures_share_or_have_their_own_bound(self):
        value_type = tff.to_type([("a", np.int64), ("b", np.int64)])

        @tff.federated_computation(tff.FederatedType(value_type, tff.CLIENTS))
        def shared(values):
            return tff.federated_secure_sum(values, 5)

        @tff.federated_computation(tff.FederatedType(value_type, tff.CLIENTS))
        def own(values):
            bounds = collections.OrderedDict(a=5, b=7)
            return tff.federated_secure_sum(values, bounds)

        values = [{"a": 5, "b": 4}, {"a": 1, "b": 1}]
        self.assertEqual(dict(shared(values)), {"a": 6, "b": 5})
        with self.assertRaisesRegex(runtime.SecureSumError, "above its bound"):
            shared([{"a": 1, "b": 6}])
        self.assertEqual(dict(own([{"a": 5, "b": 7}])), {"a": 5, "b": 7})
        with self.assertRaisesRegex(runtime.SecureSumError, "above its bound"):
            own([{"a": 6, "b": 1}])

    @parameterized.parameters(
        ([1, -2], "a contribution is negative: -2"),
        ([1, 11], "a contribution is above its bound: 11 is more than 10"),
    )
    def test_contribution_out_of_range(self, values, message):
        with self.assertRaisesRegex(runtime.SecureSumError, message):
            _secure_sum(np.int64, 10)(values)

    def test_int32_sum_may_reach_its_limit_and_no_more(self):
        total = _secure_sum(np.int32, 2**31 - 1)
        self.assertEqual(total([2**31 - 6, 5]), 2**31 - 1)
        with self.assertRaisesRegex(runtime.SecureSumError, "2147483647.*int32"):
            total([2**31 - 5, 5])

    def test_int64_sum_of_largest_bitwidth(self):
        half = np.array([2**62 - 1, 1])
        np.testing.assert_array_equal(
            _bitwidth_sum([half, half, np.array([1, 1])]), [2**63 - 1, 3]
        )
        with self.assertRaisesRegex(runtime.SecureSumError, "int64"):
            _bitwidth_sum([half, half, half])
        with self.assertRaisesRegex(runtime.SecureSumError, "above its bound"):
            _bitwidth_sum([half + 1])

    def test_works_after_an_error(self):
        total = _secure_sum(np.int64, 10)
        with self.assertRaises(runtime.SecureSumError):
            total([-1])
        self.assertEqual(total([1, 2]), 3)


class MemoryTest(absltest.TestCase):
    def test_flat_over_300_rounds_of_varying_cohorts(self):
        @tff.tensorflow.computation(tff.TensorType(np.int64, [1000]))
        def double(x):
            return 2 * x

        @tff.federated_computation(
            tff.FederatedType(tff.TensorType(np.int64, [1000]), tff.CLIENTS)
        )
        def round_total(values):
            return tff.federated_secure_sum(tff.federated_map(double, values), 10)

        random = np.random.default_rng(1)
        ones = np.ones(1000, np.int64)
        with runtime.tff_worker() as worker:
            process = psutil.Process(worker.process.pid)
            sizes = []
            for _ in range(300):
                clients = int(random.integers(5, 61))
                self.assertEqual(round_total([ones] * clients)[0], 2 * clients)
                sizes.append(process.memory_info().rss)
        # TFF's own context grows by some 30 MB a round here.
        self.assertLess(sizes[-1] - sizes[99], 50e6)


class WorkerLifeTest(parameterized.TestCase):
    def test_worker_ends_with_the_program_however_it_ends(self):
        expected = {
            "normal": 0,
            "exception": 1,
            "sigint_ignored": 0,
            "SIGINT": -signal.SIGINT,
            "SIGTERM": -signal.SIGTERM,
            "SIGKILL": -signal.SIGKILL,
        }
        with tempfile.TemporaryFile() as output:
            subprocess.run(
                [sys.executable, "-c", _SCENARIOS, *expected],
                env=_environment(),
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=300,
                check=True,
            )
            output.seek(0)
            results = [json.loads(line) for line in output]
        self.assertLen(results, len(expected))
        for scenario, code, worker_ended in results:
            with self.subTest(scenario):
                self.assertTrue(worker_ended)
                self.assertEqual(code, expected[scenario])

    def test_program_in_a_pipe_returns(self):
        pipeline = subprocess.run(
            f"{sys.executable} -c '{_PIPED}' | cat",
            shell=True,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(pipeline.stdout.strip(), "6")

    def test_runs_where_standard_output_is_no_file(self):
        class NoFile:
            def write(self, text):
                pass

            def flush(self):
                pass

        before, sys.stdout = sys.stdout, NoFile()
        try:
            with runtime.tff_worker():
                self.assertEqual(_secure_sum(np.int64, 10)([1]), 1)
        finally:
            sys.stdout = before

    def test_worker_that_died_between_calls(self):
        with runtime.tff_worker() as worker:
            worker.process.kill()
            with self.assertRaisesRegex(runtime.WorkerError, "exit code -9"):
                _secure_sum(np.int64, 10)([1])

    def test_call_that_takes_too_long(self):
        @tff.tensorflow.computation(np.int64)
        def forever(x):
            return tf.while_loop(lambda i: i >= 0, lambda i: [1 - i], [x])[0]

        @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
        def stuck(values):
            return tff.federated_secure_sum(tff.federated_map(forever, values), 10)

        start = time.monotonic()
        with (
            runtime.tff_worker(call_timeout_seconds=2) as worker,
            self.assertRaisesRegex(runtime.WorkerError, "more than 2 s"),
        ):
            stuck([0])
        self.assertIsNotNone(worker.process.poll())
        self.assertLess(time.monotonic() - start, 60)

    def test_call_without_a_worker_says_what_to_do(self):
        with self.assertRaisesRegex(runtime.WorkerError, "tff_worker"):
            _secure_sum(np.int64, 10)([1])

    def test_worker_is_gone_after_the_block(self):
        with runtime.tff_worker() as worker:
            self.assertTrue(psutil.pid_exists(worker.process.pid))
        self.assertIsNotNone(worker.process.returncode)


if __name__ == "__main__":
    absltest.main()
