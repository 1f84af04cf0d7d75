"""Tests of TFF computations in this program's own TensorFlow."""

import collections
import os
import subprocess
import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.runtime import runtime
from federated_hh.runtime.engines import in_process
from federated_hh.runtime.worker import engine_options, startup

_IN_PROCESS = engine_options.RuntimeOptions(engine_options.Runtime.IN_PROCESS)
_INT64S = tff.FederatedType(np.int64, tff.CLIENTS)

# A client's computation on the second of two logical devices.
_ON_A_DEVICE = """
import numpy as np, tensorflow as tf
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [one, one])
import tensorflow_federated as tff
from federated_hh.runtime.worker import engine_options
from federated_hh.runtime import runtime
from federated_hh.runtime.engines import interpreter
@tff.tensorflow.computation(np.float32)
def double(x):
    return 2 * x
for device in ("/CPU:0", "/CPU:1"):
    function = interpreter.function_of(double.to_building_block(), device)
    print(function(tf.constant(3.0)).device[-5:])
engine_options.choose(engine_options.RuntimeOptions(
    engine_options.Runtime.IN_PROCESS, "/CPU:1"))
@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(tff.federated_map(double, values))
with runtime.computing():
    print(total([1.0, 2.0, 4.0]))
"""


class InProcessTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        engine_options.choose(_IN_PROCESS)
        cls.addClassCleanup(engine_options.choose)
        cls.enterClassContext(runtime.computing())

    def test_all_that_a_computation_is_made_of(self):
        @tff.tensorflow.computation(np.int64, np.float32)
        def scaled(value, factor):
            return collections.OrderedDict(
                a=value, b=tf.cast(value, tf.float32) * factor
            )

        @tff.federated_computation(
            _INT64S, tff.FederatedType(np.float32, tff.SERVER), np.int32
        )
        def whole(values, factor, plain):
            found = tff.federated_map(scaled, (values, tff.federated_broadcast(factor)))
            here = tff.federated_value(plain, tff.SERVER)
            return (
                tff.federated_sum(found.a),
                tff.federated_mean(found.b),
                tff.federated_secure_sum(values, 100),
                tff.federated_zip(collections.OrderedDict(x=here, y=factor)),
            )

        found = whole([1, 2, 6], 0.5, 7)
        self.assertEqual(found[0], 9)
        self.assertEqual(found[1], 1.5)
        self.assertEqual(found[2], 9)
        self.assertEqual(found[3], {"x": 7, "y": 0.5})

    def test_a_client_is_computed_once_for_all_its_sums(self):
        calls = []

        def look(value):
            calls.append(int(value))
            return value

        @tff.tensorflow.computation(np.int64)
        def work(value):
            seen = tf.ensure_shape(tf.py_function(look, [value], tf.int64), [])
            return collections.OrderedDict(one=seen, square=seen**2, more=-seen)

        @tff.federated_computation(_INT64S)
        def sums(values):
            found = tff.federated_map(work, values)
            return (
                tff.federated_secure_sum(found.one, 10),
                tff.federated_secure_sum(found.square, 100),
                tff.federated_sum(found.more),
            )

        for values in ([1, 2, 3], [4, 5, 6, 7]):
            calls.clear()
            found = sums(values)
            squares = sum(v * v for v in values)
            self.assertEqual(tuple(found), (sum(values), squares, -sum(values)))
            self.assertCountEqual(calls, values)

    def test_floats_are_added_in_the_order_of_the_clients(self):
        @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
        def total(values):
            return tff.federated_sum(values)

        random = np.random.default_rng(1)
        values = (random.normal(size=200) * 10 ** random.uniform(-6, 6, 200)).astype(
            np.float32
        )
        expected = np.float32(0)
        for value in values:
            expected += value
        self.assertEqual(total(list(values)), expected)

    def test_clients_in_step_share_no_temporary_variable(self):
        @tff.tensorflow.computation(np.float32, np.int32)
        def work(value, num_batches):
            def step(number, value):
                # The memory optimizer counts the branch that is not taken.
                large = tf.cond(
                    value < -100,
                    lambda: tf.reduce_sum(tf.cumsum(tf.fill([60_000_000], value))),
                    lambda: 0.0,
                )
                with tf.GradientTape() as tape:
                    tape.watch(value)
                    found = [tf.sin(factor * value) + large for factor in range(1, 5)]
                slope = tape.gradient(found, value)
                return number + 1, (tf.add_n(found) + slope) / 100

            begin = (tf.constant(0), value)
            return tf.while_loop(lambda number, _: number < num_batches, step, begin)[1]

        @tff.federated_computation(
            tff.FederatedType((np.float32, np.int32), tff.CLIENTS)
        )
        def total(values):
            return tff.federated_sum(tff.federated_map(work, values))

        factors = np.arange(1, 5)
        with runtime.computing(max_concurrent_calls=8):
            for num_batches in (1, 30):
                expected = 0.1
                for _ in range(num_batches):
                    angles = factors * expected
                    slope = np.sum(factors * np.cos(angles))
                    expected = (np.sum(np.sin(angles)) + slope) / 100
                for _ in range(8):
                    found = total([(0.1, num_batches)] * 32)
                    self.assertAlmostEqual(found / (32 * expected), 1, 4)

    def test_sums_that_depend_on_sums(self):
        @tff.tensorflow.computation(np.int64, np.int64)
        def is_above(value, limit):
            return tf.cast(value > limit, tf.int64)

        @tff.federated_computation(_INT64S)
        def above(values):
            limit = tff.federated_broadcast(tff.federated_max(values))
            return tff.federated_sum(tff.federated_map(is_above, (values, limit)))

        self.assertEqual(above([1, 5, 3]), 0)

    @parameterized.parameters(-1, 11)
    def test_a_secure_sum_is_checked(self, wrong):
        @tff.federated_computation(_INT64S)
        def total(values):
            return tff.federated_secure_sum(values, 10)

        self.assertEqual(total([10, 0, 10]), 20)
        with self.assertRaisesRegex(runtime.SecureSumError, "a contribution is"):
            total([1, wrong, 2])

    def test_values_of_another_type(self):
        @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
        def total(values):
            return tff.federated_sum(values)

        with self.assertRaisesRegex(TypeError, "is not of the type int32"):
            total([np.int64(1), np.int64(2)])

    def test_what_it_does_not_do(self):
        @tff.tensorflow.computation(tff.SequenceType(np.int64))
        def size(dataset):
            return dataset.reduce(np.int64(0), lambda x, _: x + 1)

        with self.assertRaisesRegex(ValueError, "--runtime=worker"):
            size([1, 2])


class DeviceTest(absltest.TestCase):
    def test_a_device_that_is_not_there(self):
        for name in ("/GPU:9", "nonsense", "/CPU:7"):
            with self.assertRaisesRegex(in_process.DeviceError, f"'{name}'.*CPU:0"):
                in_process.Context(name, None)

    def test_a_device_of_the_worker(self):
        with self.assertRaisesRegex(ValueError, "--device is '/GPU:0'"):
            engine_options.RuntimeOptions(device="/GPU:0")

    def test_the_device_computes(self):
        done = subprocess.run(
            [sys.executable, "-c", _ON_A_DEVICE],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.stdout.split(), ["CPU:0", "CPU:1", "14.0"], done.stderr)


class IdentityTest(absltest.TestCase):
    def test_what_float_sums_depend_on(self):
        of_the_worker = startup.arithmetic()
        self.assertNotIn("runtime", of_the_worker)
        self.addCleanup(engine_options.choose)
        engine_options.choose(_IN_PROCESS)
        self.assertEqual(startup.arithmetic()["runtime"], "in_process")
        engine_options.choose(
            engine_options.RuntimeOptions(engine_options.Runtime.IN_PROCESS, "/GPU:0")
        )
        self.assertEqual(startup.arithmetic()["device"], "/GPU:0")


if __name__ == "__main__":
    absltest.main()
