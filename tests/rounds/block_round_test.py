"""Tests of the TFF computation that all algorithms' client work runs in."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from randomness import streams
from rounds import block_round
from simulation import runtime

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
        # A sum in the open takes them.
        sums = self.ask(work, {"votes": None}, np.arange(4), 2, weight=np.int64(1))
        self.assertEqual(int(sums["votes"]), 6)

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
