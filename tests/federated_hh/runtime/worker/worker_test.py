"""Tests of the worker's network, and of workers that stop, hang or are killed."""

import collections
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from unittest import mock

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.python.core.impl.executors import value_serialization

from federated_hh.runtime import runtime
from federated_hh.runtime.worker import executor, startup, worker, worker_context
from tests import ROOT

_TIMEOUT = 2.0  # seconds without an answer, after which a worker is ended
# What the machine may need beyond it.
_PATIENCE = 30.0

# Imports NumPy before anything else, has threads, and then starts a worker.
_THREADED = """
    import json, sys, threading
    import numpy as np
    np.ones((300, 300)) @ np.ones((300, 300))
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    from federated_hh.runtime import runtime
    import tensorflow_federated as tff
    from absl import logging
    logging.set_verbosity(logging.INFO)

    @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
    def total(values):
        return tff.federated_secure_sum(values, 10)

    with runtime.tff_worker() as worker:
        facts = {
            "total": int(total([1, 2])),
            "port": worker.port,
            "isolated": worker.is_isolated,
            "threads": threading.active_count(),
        }
        print(json.dumps(facts), flush=True)
        sys.stdin.read()
"""
# Stops itself for longer than a worker may be silent.
_STOPPED_ITSELF = """
    import os, signal
    import numpy as np
    from federated_hh.runtime import runtime
    import tensorflow_federated as tff

    @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
    def total(values):
        return tff.federated_secure_sum(values, 10)

    with runtime.tff_worker(answer_timeout_seconds=2) as worker:
        total([1, 2])
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        print(total([1, 2]))
"""


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}


def _start(program, before=()):
    return subprocess.Popen(
        [*before, sys.executable, "-c", textwrap.dedent(program)],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _listens(address, port):
    try:
        socket.create_connection((address, port), timeout=10).close()
    except OSError:
        return False
    return True


def _own_addresses():
    """Returns the addresses of this machine by which others may reach it."""
    found = ["127.0.0.1", "::1"]
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family == socket.AF_INET:
                found.append(address.address)
    return sorted(set(found))


@tff.tensorflow.computation(tff.TensorType(np.int64), tff.TensorType(np.float64))
def _busy(value, seconds):
    """Returns the value after computing for some seconds."""
    end = tf.timestamp() + seconds
    return tf.while_loop(
        lambda i: tf.timestamp() < end, lambda i: [i], [value], parallel_iterations=1
    )[0]


def _computing(seconds):
    @tff.tensorflow.computation(np.int64)
    def busy(value):
        return _busy(value, tf.constant(seconds, tf.float64))

    @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
    def total(values):
        return tff.federated_secure_sum(tff.federated_map(busy, values), 10)

    return total


def _forwarder(started):
    (child,) = psutil.Process(started.process.pid).children()
    return child


def _is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class NetworkTest(parameterized.TestCase):
    def test_nobody_reaches_the_worker_of_a_program_with_threads(self):
        with _start(_THREADED) as program:
            line = program.stdout.readline()
            if not line:
                self.fail(program.stderr.read())
            facts = json.loads(line)
            reached = [a for a in _own_addresses() if _listens(a, facts["port"])]
            _, errors = program.communicate("")
        if not facts["isolated"]:
            self.assertIn("no network of its own (", errors)
            self.skipTest(f"this machine allows no network namespaces: {errors[-500:]}")
        self.assertGreater(facts["threads"], 1)
        self.assertEqual(facts["total"], 3)
        self.assertEqual(reached, [])
        self.assertNotIn("no network of its own", errors)

    def test_without_a_network_of_its_own_it_is_reached(self):
        # So the test above would notice.
        startup.isolate_workers(False)
        self.addCleanup(startup.isolate_workers, True)
        with runtime.tff_worker() as started:
            self.assertFalse(started.is_isolated)
            self.assertTrue(_listens("127.0.0.1", started.port))
            self.assertEqual(_computing(0.0)([1, 2]), 3)

    def test_the_reason_is_what_the_system_says(self):
        forbid = "echo 0 > /proc/sys/user/max_net_namespaces && exec "
        inside = ("unshare", "--user", "--map-root-user", "sh", "-c", forbid + '"$@"')
        probe = subprocess.run([*inside, "sh", "true"], stderr=subprocess.DEVNULL)
        if probe.returncode != 0:
            self.skipTest("this machine allows no user namespaces")
        with _start(_THREADED, before=(*inside, "sh")) as program:
            output, errors = program.communicate("")
        facts = json.loads(output.splitlines()[0])
        self.assertFalse(facts["isolated"])
        self.assertEqual(facts["total"], 3)
        self.assertIn("'unshare'; user.max_net_namespaces is 0)", errors)

    def test_only_this_user_reaches_the_socket(self):
        with runtime.tff_worker() as started:
            if not started.is_isolated:
                self.skipTest("this machine allows no network namespaces")
            path = pathlib.Path(started._socket_path)
            self.assertTrue(stat.S_ISSOCK(path.stat().st_mode))
            self.assertEqual(stat.S_IMODE(path.parent.stat().st_mode), 0o700)
            forwarder = _forwarder(started)
        self.assertFalse(path.parent.exists())
        deadline = time.monotonic() + 10
        while not _is_gone(forwarder) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(_is_gone(forwarder))

    def test_the_forwarder_ends_with_a_killed_program(self):
        with _start(_THREADED) as program:
            self.assertTrue(program.stdout.readline())
            (started,) = psutil.Process(program.pid).children()
            processes = [started, *started.children()]
            self.assertFalse(any(map(_is_gone, processes)))
            program.kill()
            deadline = time.monotonic() + 10
            while not all(map(_is_gone, processes)) and time.monotonic() < deadline:
                time.sleep(0.01)
        self.assertTrue(all(map(_is_gone, processes)))

    def test_what_a_killed_program_left_is_removed(self):
        with runtime.tff_worker() as held, _start(_THREADED) as program:
            self.assertTrue(program.stdout.readline())
            parent = pathlib.Path(held._socket_path).parent.parent
            before = set(parent.glob("tff-worker-*"))
            program.kill()
            program.wait()
            with runtime.tff_worker():
                after = set(parent.glob("tff-worker-*"))
            # That of the living one stays, and is in use.
            self.assertIn(pathlib.Path(held._socket_path).parent, before & after)
            self.assertNotEmpty(before - after)
            context = worker_context.WorkerContext(held, None)
            with tff.framework.get_context_stack().install(context):
                self.assertEqual(_computing(0.0)([1, 2]), 3)

    def test_a_start_that_is_interrupted_leaves_nothing(self):
        folder = tempfile.mkdtemp(dir="/tmp")  # short enough for a socket
        self.addCleanup(os.rmdir, folder)
        self.enter_context(mock.patch.object(tempfile, "tempdir", folder))
        before = set(psutil.Process().children())
        with (
            mock.patch.object(
                worker.Worker, "_wait_until_ready", side_effect=KeyboardInterrupt
            ),
            self.assertRaises(KeyboardInterrupt),
        ):
            worker.Worker()
        self.assertEqual(os.listdir(folder), [])
        self.assertEqual(set(psutil.Process().children()), before)

    def test_long_directory_of_temporary_files(self):
        long = pathlib.Path(self.create_tempdir().full_path) / ("d" * 100)
        long.mkdir()
        before, tempfile.tempdir = tempfile.tempdir, str(long)
        try:
            with runtime.tff_worker():
                self.assertEqual(_computing(0.0)([1, 2]), 3)
        finally:
            tempfile.tempdir = before

    def test_large_messages(self):
        kind = tff.TensorType(np.int64, [5_000_000])

        @tff.tensorflow.computation(kind)
        def reverse(x):
            return x[::-1]

        numbers = np.random.default_rng(1).integers(0, 2**62, 5_000_000)
        with runtime.tff_worker():
            for _ in range(3):
                np.testing.assert_array_equal(reverse(numbers), numbers[::-1])


class MessageTest(parameterized.TestCase):
    """Messages are those of TFF's own serializer, byte for byte."""

    @parameterized.parameters(
        (np.float32, np.float32(1.5)),
        ((np.float32, [2, None]), np.arange(6, dtype=np.float32).reshape(2, 3)),
        ((np.float32, [0]), np.zeros(0, np.float32)),
        ((np.int64, [3]), np.arange(9)[::3]),
        ((np.int64, [2]), [1, 2]),
        ((np.str_, [2]), np.array([b"a", b"\xc3\xa9"], object)),
        ((np.bool_, [2]), np.array([True, False])),
    )
    def test_arrays_in_structures_and_at_clients(self, kind, value):
        member = tff.to_type(
            collections.OrderedDict(
                a=kind, b=[kind, np.int32], c=collections.OrderedDict()
            )
        )
        member_value = collections.OrderedDict(a=value, b=[value, 3], c={})
        for whole, of in (
            (member, member_value),
            (tff.FederatedType(member, tff.SERVER), member_value),
            (tff.FederatedType(member, tff.CLIENTS), [member_value, member_value]),
        ):
            message = executor_pb2.Value()
            found = executor.write(message, of, whole)
            expected, kind_of = value_serialization.serialize_value(of, whole)
            self.assertEqual(message.SerializeToString(), expected.SerializeToString())
            self.assertEqual(found, kind_of)

    @parameterized.parameters(
        ((np.float32, [3]), np.zeros(2, np.float32)),
        ((np.float32, [2]), np.zeros(2)),
        ([np.float32, np.float32], [np.float32(1)]),
    )
    def test_a_value_of_another_type(self, kind, value):
        with self.assertRaises(TypeError):
            executor.write(executor_pb2.Value(), value, tff.to_type(kind))

    def test_a_computation(self):
        @tff.tensorflow.computation(np.int32)
        def twice(number):
            return 2 * number

        message = executor_pb2.Value()
        found = executor.write(message, twice, None)
        expected, kind = value_serialization.serialize_value(twice)
        self.assertEqual((message, found), (expected, kind))


class EnvironmentTest(absltest.TestCase):
    def test_an_operation_has_one_thread_and_all_threads_one_arena(self):
        with runtime.tff_worker() as worker:
            found = psutil.Process(worker.process.pid).environ()
        self.assertEqual(found["TF_NUM_INTRAOP_THREADS"], "1")
        self.assertEqual(found["MALLOC_ARENA_MAX"], "1")
        self.assertEqual(found["MALLOC_TRIM_THRESHOLD_"], "1048576")
        self.assertEqual(found["MALLOC_MMAP_THRESHOLD_"], "33554432")

    def test_what_the_user_set_stays(self):
        chosen = {"MALLOC_TRIM_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "3"}
        with mock.patch.dict(os.environ, chosen), runtime.tff_worker() as worker:
            found = psutil.Process(worker.process.pid).environ()
        self.assertEqual({name: found[name] for name in chosen}, chosen)
        self.assertEqual(found["MALLOC_MMAP_THRESHOLD_"], "33554432")

    def test_a_client_a_core_is_computed_at_once(self):
        flag = "--max_concurrent_computation_calls="
        for cores, given, expected in (({0}, -1, 2), ({*range(7)}, -1, 7), ({0}, 3, 3)):
            with (
                mock.patch.object(os, "sched_getaffinity", lambda _, c=cores: c),
                runtime.tff_worker(max_concurrent_calls=given) as worker,
            ):
                found = psutil.Process(worker.process.pid).cmdline()
            self.assertIn(f"{flag}{expected}", found)


class SilenceTest(parameterized.TestCase):
    @parameterized.parameters("worker", "forwarder")
    def test_stopped_in_a_call(self, which):
        self._check_signal(which, signal.SIGSTOP, "has not answered for 2 s")

    def test_killed_in_a_call(self):
        self._check_signal("worker", signal.SIGKILL, "ended with exit code -9")

    def test_forwarder_killed_in_a_call(self):
        self._check_signal("forwarder", signal.SIGKILL, "has not answered for 2 s")

    def _check_signal(self, which, sent, message):
        with runtime.tff_worker(answer_timeout_seconds=_TIMEOUT) as started:
            if which == "forwarder" and not started.is_isolated:
                self.skipTest("this machine allows no network namespaces")
            _computing(0.0)([1])
            processes = {"worker": psutil.Process(started.process.pid)}
            if started.is_isolated:
                processes["forwarder"] = _forwarder(started)
            timer = threading.Timer(1.0, processes[which].send_signal, [sent])
            timer.start()
            begun = time.monotonic()
            with self.assertRaisesRegex(runtime.WorkerError, message):
                _computing(600.0)([1])
            self.assertLess(time.monotonic() - begun, 1.0 + _TIMEOUT + _PATIENCE)
            with self.assertRaisesRegex(runtime.WorkerError, message):
                _computing(0.0)([1])
        self.assertTrue(all(map(_is_gone, processes.values())))

    def test_stopped_between_calls(self):
        with (
            self.assertLogs(level="WARNING") as log,
            runtime.tff_worker(answer_timeout_seconds=_TIMEOUT) as started,
        ):
            _computing(0.0)([1])
            started.process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            with self.assertRaisesRegex(runtime.WorkerError, "stopped, or hangs"):
                _computing(0.0)([1])
            self.assertLess(time.monotonic() - begun, _TIMEOUT + _PATIENCE)
        self.assertIn("has not answered for 1 s; it is stopped after 2 s", str(log))

    def test_long_computations_are_waited_for(self):
        # As many as the worker runs at once, and as many more.
        clients = 2 * startup.calls_at_once()
        with runtime.tff_worker(answer_timeout_seconds=_TIMEOUT):
            begun = time.monotonic()
            self.assertEqual(_computing(1.5 * _TIMEOUT)([1] * clients), clients)
            self.assertGreater(time.monotonic() - begun, 1.4 * _TIMEOUT)

    def test_a_program_that_was_stopped_does_not_blame_the_worker(self):
        with _start(_STOPPED_ITSELF) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            process = psutil.Process(program.pid)
            while process.status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
            time.sleep(3 * _TIMEOUT)
            program.send_signal(signal.SIGCONT)
            output, errors = program.communicate()
        self.assertEqual(output, "3\n", errors)


if __name__ == "__main__":
    absltest.main()
