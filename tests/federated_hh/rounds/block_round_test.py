"""Tests of the TFF computation that all algorithms' client work runs in."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.randomness import streams
from federated_hh.rounds import block_round
from federated_hh.runtime import runtime

_STREAM = streams.Stream(1)


def _count(message, block):
    clients = block["clients"]
    return {
        "number": tf.size(clients, tf.int64),
        "weighted": [tf.reduce_sum(clients) * message["weight"]],
    }


class BlockRoundTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())

    def ask(self, work, largest, cohort, block_size, **message):
        computation = block_round.BlockRound(work, largest, block_size=block_size)
        return computation(message or {"weight": np.int64(1)}, cohort, _STREAM)

    @parameterized.parameters(1, 3, 7, 100)
    def test_sums_do_not_depend_on_the_blocks(self, block_size):
        cohort = np.arange(10, 17)
        largest = {"number": 1, "weighted": 48}
        sums = self.ask(_count, largest, cohort, block_size, weight=np.int64(3))
        self.assertEqual(int(sums["number"]), 7)
        self.assertEqual(int(sums["weighted"][0]), 3 * sum(range(10, 17)))

    def test_a_block_that_adds_more_than_its_clients_may_is_an_error(self):
        def work(message, block):
            return {"votes": tf.size(block["clients"], tf.int64) + message["weight"]}

        sums = self.ask(work, {"votes": 1}, np.arange(4), 2, weight=np.int64(0))
        self.assertEqual(int(sums["votes"]), 4)
        for weight in (1, -3):
            with self.assertRaises(runtime.SecureSumError):
                self.ask(work, {"votes": 1}, np.arange(4), 2, weight=np.int64(weight))
        # A sum in the clear takes them.
        sums = self.ask(work, {"votes": None}, np.arange(4), 2, weight=np.int64(1))
        self.assertEqual(int(sums["votes"]), 6)

    @parameterized.parameters(1, 3, 5)
    def test_a_sum_modulo_a_power_of_two(self, block_size):
        def work(message, block):
            total = tf.reduce_sum(block["clients"] * message["weight"])
            return {"delta": [total, total + 1]}

        cohort = np.array([3, 2**40 + 5, 7, 2**61 + 1, 2**61 + 4])
        for bits, weight in ((3, 1), (10, 3), (62, 1), (62, 2)):
            sums = self.ask(
                work,
                {"delta": block_round.PowerOfTwo(2**bits - 1, 1)},
                cohort,
                block_size,
                weight=np.int64(weight),
            )
            # Python's integers do not wrap.
            expected = weight * sum(cohort.tolist()) % 2**bits
            self.assertEqual(int(sums["delta"][0]), expected)
        for largest, clients, bits in ((1, 1, 1), (3, 5, 4), (4, 4, 5), (1, 2**61, 62)):
            self.assertEqual(block_round.PowerOfTwo(largest, clients).bits, bits)
        for largest, clients in ((0, 1), (1, 0), (2**61, 2)):
            with self.assertRaisesRegex(ValueError, rf"largest is {largest} of.*2\^62"):
                block_round.PowerOfTwo(largest, clients)

    def test_every_block_has_its_place_and_a_seed_of_its_own(self):
        computation = block_round.BlockRound(_count, {}, block_size=3)
        blocks = computation.blocks(np.arange(20, 28), _STREAM)
        self.assertEqual([b["first_place"] for b in blocks], [0, 3, 6])
        self.assertEqual([len(b["clients"]) for b in blocks], [3, 3, 2])
        seeds = {b["seed"].tobytes() for b in blocks}
        other = computation.blocks(np.arange(20, 28), _STREAM.of(b"x"))
        self.assertLen(seeds | {b["seed"].tobytes() for b in other}, 6)

    def test_a_growing_message_needs_no_other_computation(self):
        def work(message, block):
            return {"sum": tf.reduce_sum(message["row"]) * tf.size(block["clients"])}

        computation = block_round.BlockRound(
            work, {"sum": None}, block_size=2, growing=frozenset(["row"])
        )
        for size in (1, 5):
            row = np.ones(size, np.int32)
            found = computation({"row": row}, np.arange(3), _STREAM)
            self.assertEqual(int(found["sum"]), 3 * size)

    @parameterized.parameters(0, -1)
    def test_block_size(self, size):
        with self.assertRaisesRegex(ValueError, f"block_size is {size}"):
            block_round.BlockRound(_count, {}, block_size=size)
        with self.assertRaisesRegex(ValueError, f"num_blocks is {size}"):
            block_round.block_size_of(10, size)


if __name__ == "__main__":
    absltest.main()
