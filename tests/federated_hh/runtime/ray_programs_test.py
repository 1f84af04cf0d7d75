"""Tests of rounds on a Ray cluster with real processes, some of which are killed."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

import numpy as np
import psutil
import tensorflow as tf
from absl.testing import absltest, parameterized

from benchmarks import engine_workloads
from federated_hh.files import verified_files
from federated_hh.randomness import streams
from federated_hh.rounds import block_round
from federated_hh.runtime import runtime
from federated_hh.runtime.engines import ray_engine, ray_worker, slices
from federated_hh.runtime.worker import engine_options, startup, stops
from tests import ROOT, run_directories

_SLICE_SECONDS = 5.0

_RUN = (
    *("--num_clients=1000", "--threshold=5", "--cohort_size=100", "--delta=1e-3"),
    *("--max_length=6", "--num_repeats=3", "--seed=1", "--population=synthetic"),
)


def _options(**options):
    return engine_options.EngineOptions(
        engine_options.Engine.RAY, slice_timeout=_SLICE_SECONDS, **options
    )


def _environment():
    path = os.pathsep.join([str(ROOT), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


def _slow_round():
    """Returns a round of eight slices, each of which takes a fraction of a second."""

    def work(message, block):
        matrix = tf.random.stateless_normal([300, 300], block["seed"])
        _, value = tf.while_loop(
            lambda step, _: step < message["steps"],
            lambda step, value: (step + 1, tf.tanh(value @ matrix)),
            (tf.constant(0), matrix),
        )
        # Never true: so that TensorFlow does not leave the loop out.
        more = tf.cast(tf.reduce_max(value) > 2, tf.int64)
        return {"clients": tf.size(block["clients"], tf.int64) + more}

    return block_round.BlockRound(work, {"clients": 1}, block_size=5)


class RayEngineTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        startup.silence_tensorflow()
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        words = engine_workloads.population(cls.scratch, 2000)
        cls.workloads = [
            engine_workloads.votes(words, 500),
            engine_workloads.reports(words, 200),
            *engine_workloads.training(cls.scratch, 5, 4, num_blocks=3),
        ]
        with runtime.tff_worker():
            cls.expected = [cls.rounds(workload) for workload in cls.workloads]
        cls.addClassCleanup(engine_options.choose)
        engine_options.choose(engine=_options(num_workers=2))
        cls.enterClassContext(ray_engine.cluster(_options(num_workers=2)))
        cls.actors = cls.enterClassContext(ray_engine.computing(-1))

    @staticmethod
    def rounds(workload):
        # Each has candidates of its own, and later rounds differ in nothing else.
        return list(itertools.islice(workload.rounds(), 3))

    def test_results_are_those_of_one_worker_to_the_bit(self):
        for workload, expected in zip(self.workloads, self.expected, strict=True):
            with self.subTest(workload.name):
                found = self.rounds(workload)
                self.assertEqual(engine_workloads.difference(expected, found), 0)

    @parameterized.parameters(
        ("actor", signal.SIGKILL),
        ("worker", signal.SIGKILL),
        ("actor", signal.SIGSTOP),
    )
    def test_a_process_that_fails_in_a_round(self, which, how):
        slow = _slow_round()
        message = {"steps": np.int32(200)}
        stream = streams.Stream(1)
        slow({"steps": np.int32(1)}, np.arange(40), stream)  # compiles
        actor, worker = self._processes()
        victim = {"actor": actor, "worker": worker}[which]
        killer = threading.Timer(0.2, os.kill, [victim, how])
        killer.start()
        found = slow(message, np.arange(40), stream)
        killer.join()
        self.assertEqual(int(found["clients"]), 40)
        # Nothing is left of the worker that was ended with its actor.
        deadline = time.monotonic() + 20
        while psutil.pid_exists(worker) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertFalse(psutil.pid_exists(worker))
        again = slow({"steps": np.int32(1)}, np.arange(40), stream)
        self.assertEqual(int(again["clients"]), 40)

    def _processes(self):
        """Returns the ids of an actor that has begun, and of its TFF worker."""
        import ray

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            actor, worker = ray.get(self.actors.handles[0].process_ids.remote())
            if worker is not None:
                return actor, worker
            slices_of = _slow_round()
            slices_of({"steps": np.int32(1)}, np.arange(5), streams.Stream(1))
        self.fail("the actor did not begin")

    def test_a_contribution_out_of_range(self):
        def work(message, block):
            return {"n": tf.cast(message["n"], tf.int64)}

        too_many = block_round.BlockRound(work, {"n": 1}, block_size=2)
        with self.assertRaisesRegex(runtime.SecureSumError, "above its bound"):
            too_many({"n": np.int64(3)}, np.arange(4), streams.Stream(1))

    def test_too_few_cores(self):
        engine_options.choose(engine=_options(num_workers=50, ray_address="auto"))
        self.addCleanup(engine_options.choose, engine=_options(num_workers=2))
        with (
            self.assertRaisesRegex(slices.EngineError, "num_workers is 50.*most 2"),
            ray_engine.computing(-1),
        ):
            pass


class RefusalTest(absltest.TestCase):
    def _terms(self, **changes):
        return dataclasses.replace(ray_worker.Terms.now(-1, 60.0), **changes)

    def _refusal(self, **changes):
        with contextlib.ExitStack() as stack:
            stack.callback(startup.isolate_workers, True)
            found = ray_worker.SliceWorker().begin(self._terms(**changes))
        self.assertStartsWith(found, f"{socket.gethostname()}: ")
        return found

    def test_another_version(self):
        self.assertRegex(self._refusal(code="x"), "code has the digest .* to be x")
        packages = {**self._terms().packages, "tensorflow": "9.9"}
        self.assertRegex(
            self._refusal(packages=packages), "tensorflow is 2.14.1; it has to be 9.9"
        )

    def test_other_data(self):
        with tempfile.TemporaryDirectory() as scratch:
            words = engine_workloads.population(scratch, 10_000)
            path = words.column_path("entries")
            files = verified_files.columns_in_use()
            kept = path + ".kept"
            shutil.copy(path, kept)
            with open(path, "r+b") as file:
                file.write(b"\1\2\3\4")
            self.assertRegex(self._refusal(files=files), f"{path} is damaged")
            os.remove(path)
            self.assertRegex(self._refusal(files=files), f"{path} is missing")

    def test_no_cluster(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
            for wrong in (address, "nonsense", "127.0.0.1:no"):
                with (
                    self.assertRaisesRegex(slices.EngineError, "--ray_address is"),
                    ray_engine.cluster(_options(ray_address=wrong)),
                ):
                    pass

    def test_more_workers_than_this_machine_bears(self):
        with self.assertRaisesRegex(ValueError, "num_workers is 5000; .* at most"):
            _options(num_workers=5000)

    def test_options_of_another_engine(self):
        for option in ({"num_workers": 2}, {"ray_address": "auto"}):
            with self.assertRaisesRegex(ValueError, "or give --engine=ray"):
                engine_options.EngineOptions(**option)


class CutsTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 31, 32, 33, 100, 1000)
    def test_slices_are_all_values_once_and_in_order(self, size):
        for order_matters in (False, True):
            found = ray_engine.cuts(size, order_matters)
            values = [i for first, last in found for i in range(first, last)]
            self.assertEqual(values, list(range(size)))
            most = size if order_matters else ray_engine.MOST_SLICES
            self.assertLessEqual(len(found), most)


class EndsTest(parameterized.TestCase):
    """A program that ends early, with a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Short, for Ray's sockets.
        folder = tempfile.TemporaryDirectory(prefix="r", dir="/tmp")
        cls.scratch = cls.enterClassContext(folder)
        cls.temporary = pathlib.Path(cls.scratch, "t")
        cls.temporary.mkdir()
        cls.whole = os.path.join(cls.scratch, "whole")
        done = cls._start(cls.whole, "--engine=embedded")
        errors = done.communicate()[1]
        assert done.returncode == 0, errors

    @classmethod
    def _start(cls, output_dir, *flags):
        command = [sys.executable, "-m", "federated_hh.run_triehh", *_RUN, *flags]
        command += [f"--population_cache={cls.scratch}/cache"]
        return subprocess.Popen(
            [*command, f"--output_dir={output_dir}"],
            env=_environment() | {"TMPDIR": str(cls.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @parameterized.parameters(
        ("raylet", signal.SIGKILL, "error: the program was killed, or ended by Ray", 1),
        ("gcs_server", signal.SIGKILL, "error: the program was killed", 1),
        ("", signal.SIGKILL, "error: the program was killed", -signal.SIGKILL),
        ("", signal.SIGTERM, "interrupted by SIGTERM", 128 + signal.SIGTERM),
    )
    def test_nothing_is_left_and_the_run_goes_on(self, victim, how, line, code):
        output_dir = os.path.join(self.scratch, f"{victim}{how.name}")
        program = self._start(output_dir, "--engine=ray", "--num_workers=2")
        self.addCleanup(program.kill)
        while "round 1 of" not in (before := program.stderr.readline()):
            self.assertNotEmpty(before)
        below = psutil.Process(program.pid).children(recursive=True)
        self.assertGreater(len(below), 5)
        modes = [os.stat(each).st_mode & 0o777 for each in self.temporary.iterdir()]
        self.assertEqual(modes, [0o700])
        struck = [each.pid for each in below if each.name() == victim]
        os.kill(struck[0] if victim else program.pid, how)
        output, errors = program.communicate(timeout=120)
        # But for the log, whose lines begin with the time.
        lines = [each for each in errors.splitlines() if each and each[2:3] != ":"]
        self.assertLen(lines, 1, errors)
        self.assertStartsWith(lines[0], line)
        self.assertRegex(lines[0], rf"; resume with: .* triehh .*{output_dir}$")
        self.assertEqual((program.returncode, output), (code, ""))
        self.assertEmpty(psutil.wait_procs(below, timeout=10)[1])
        self.assertEmpty(list(self.temporary.iterdir()))
        resumed = self._start(output_dir, "--resume", "--engine=embedded")
        errors = resumed.communicate()[1]
        self.assertEqual(resumed.returncode, 0, errors)
        self.assertEqual(run_directories.differing(self.whole, output_dir), [])


class FailuresTest(absltest.TestCase):
    def test_an_error_of_ray(self):
        with (
            mock.patch.object(stops, "advice", return_value="; resume with: x"),
            self.assertRaisesRegex(
                slices.EngineError, r"^Ray failed \(full .*\); resume with: x$"
            ),
            ray_engine.cluster(_options(num_workers=1)) as ray,
        ):
            raise ray.exceptions.ObjectStoreFullError("full")

    def test_a_cluster_that_does_not_start(self):
        ray = ray_engine.import_ray(is_local=True)
        with (
            mock.patch.object(stops, "advice", return_value="; resume with: x"),
            mock.patch.object(ray, "init", side_effect=Exception("node timed\nout")),
            self.assertRaisesRegex(
                slices.EngineError,
                r"^Ray did not start \(node timed out\); resume with: x$",
            ),
            ray_engine.cluster(_options(num_workers=1)),
        ):
            pass

    def test_without_ray(self):
        engine_options.choose(engine=_options())
        self.addCleanup(engine_options.choose)
        with (
            mock.patch.dict(sys.modules, ray=None),
            self.assertRaisesRegex(RuntimeError, "needs the package ray"),
            runtime.computing(),
        ):
            pass


if __name__ == "__main__":
    absltest.main()
