"""Tests of the range checks."""

import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.options import checks


class ChecksTest(parameterized.TestCase):
    def test_the_value_is_returned(self):
        for found, expected in (
            (checks.integer(rounds=np.int64(3), least=3), 3),
            (checks.integer(clients=1, rounds=2, least=1, most=2), 2),
            (checks.positive(epsilon=np.float32(0.5)), 0.5),
            (checks.positive(epsilon=2, most=2), 2.0),
            (checks.not_negative(stddev=0), 0.0),
            (checks.probability(delta=1e-300), 1e-300),
            (checks.fraction(share=1), 1.0),
            (checks.one_of((8, 16), bits=16), 16),
        ):
            self.assertEqual(found, expected)
            self.assertIs(type(found), type(expected))

    @parameterized.parameters(
        (lambda: checks.integer(least=1, a=1, b=0), "b is 0; .* an integer of at "),
        (lambda: checks.integer(least=1, most=2, a=3), "a is 3; .* and at most 2"),
        (lambda: checks.integer(least=1, why="x y", a=0), "at least 1 .x y."),
        (lambda: checks.integer(least=0, a=True), "a is True; "),
        (lambda: checks.integer(least=0, a=1.0), "a is 1.0; "),
        (lambda: checks.positive(z=0), "z is 0.0; .* finite number above 0"),
        (lambda: checks.positive(z=math.inf), "z is inf; "),
        (lambda: checks.positive(z=3, most=2), "z is 3.0; .* and at most 2"),
        (lambda: checks.positive(z="1"), "z is '1'; it has to be a number"),
        (lambda: checks.positive(z=10**400), "at most 1.8e308"),
        (lambda: checks.not_negative(z=-1e-9), "z is -1e-09; .* at least 0"),
        (lambda: checks.not_negative(z=math.nan), "z is nan; "),
        (lambda: checks.probability(delta=1), "delta is 1.0; .* between 0 and 1"),
        (lambda: checks.probability(delta=0), "delta is 0.0; "),
        (lambda: checks.fraction(share=1.01), "share is 1.01; .* at most 1"),
        (lambda: checks.one_of((8, 16), bits=9), "bits is 9; .* one of 8, 16"),
        (lambda: checks.holds(False, "odd", n=2), "n is 2; it has to be odd"),
    )
    def test_what_is_outside_is_refused(self, check, message):
        with self.assertRaisesRegex(ValueError, message):
            check()


if __name__ == "__main__":
    absltest.main()
