"""Tests of the random streams that everything is drawn from."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.randomness import streams


class SeedsTest(parameterized.TestCase):
    def test_streams_differ_by_every_part_of_their_name(self):
        names = [
            (1, "a"),
            (2, "a"),
            (1, "b"),
            (1, "a", 0),
            (1, "a", 1),
            (1, "a", 2**32),
            (1, "a", 0, 1),
            (1, "a", 1, 0),
            (1, "a", 1, 0, 0),
        ]
        states = {streams.derive(*name).generate_state(4).tobytes() for name in names}
        self.assertLen(states, len(names))

    def test_same_name_same_stream(self):
        self.assertEqual(
            streams.generator(7, "x", 3).random(), streams.generator(7, "x", 3).random()
        )
        seed = streams.stateless_seed(7, "x", 3)
        self.assertEqual((seed.dtype, seed.shape), (np.int32, (2,)))

    def test_streams_of_a_round_differ_by_key_path_and_history(self):
        one = streams.Stream(1, ("a",), b"sums")
        others = [one, streams.Stream(2, ("a",), b"sums"), one.at("b")]
        others += [one.of(b"other sums"), one.of(b"")]
        for drawn in (
            {stream.generator("x").random() for stream in others},
            {stream.stateless_seed("x").tobytes() for stream in others},
            {stream.bits("x").bytes(0, 8) for stream in others},
        ):
            self.assertLen(drawn, 5)

    @parameterized.parameters(((-1, "a"),), ((1, -2),))
    def test_negative_numbers_are_refused(self, name):
        with self.assertRaisesRegex(ValueError, "-"):
            streams.derive(*name)


if __name__ == "__main__":
    absltest.main()
