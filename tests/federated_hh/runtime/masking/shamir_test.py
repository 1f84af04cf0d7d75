"""Tests of secret sharing, against interpolation in Python's integers."""

import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.randomness import streams
from federated_hh.runtime.masking import shamir

_P = 65537


def _numbers(share):
    """Returns the 16 numbers of a share, read bit by bit."""
    low = [share[2 * i] + 256 * share[2 * i + 1] for i in range(16)]
    above = int.from_bytes(share[32:], "big")
    return [n + 65536 * (above >> (15 - i) & 1) for i, n in enumerate(low)]


def _at_zero(points, values):
    """Returns Lagrange's interpolation."""
    total = 0
    for x, y in zip(points, values, strict=True):
        for other in points:
            if other != x:
                y = y * other * pow(other - x, -1, _P)
        total += y
    return total % _P


class ShamirTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.bits = streams.KeyedBits(5, "shamir")

    @parameterized.parameters(bytes(32), b"\xff" * 32, bytes(range(32)))
    def test_any_threshold_of_shares_opens(self, secret):
        other = bytes(reversed(range(32)))
        first, second = shamir.share([secret, other], 6, 3, self.bits)
        for points in itertools.permutations(range(1, 7), 3):
            parts = [first[p - 1] for p in points]
            self.assertEqual(shamir.reconstruct(points, parts), secret)
            numbers = zip(*map(_numbers, parts), strict=True)
            found = [_at_zero(points, values) for values in numbers]
            self.assertEqual(np.array(found, "<u2").tobytes(), secret)
        self.assertEqual(shamir.reconstruct((2, 4, 6), second[1::2]), other)

    def test_many_shares_are_exact(self):
        secret = b"\xff\xfe" * 16
        (shares,) = shamir.share([secret], 900, 600, self.bits)
        self.assertEqual(len(shares[0]), shamir.SHARE_BYTES)
        points = tuple(range(300, 900))
        self.assertEqual(
            shamir.reconstruct(points, [shares[p - 1] for p in points]), secret
        )

    def test_fewer_shares_say_nothing(self):
        # Of a threshold of 2, over all polynomials: one share has every value once,
        # whatever the secret is.
        slopes = np.append(np.arange(_P), np.zeros(16 - _P % 16, np.int64))
        for secret in (bytes(32), b"\xff\xff" * 16):
            seen = []
            for row in slopes.reshape(-1, 16):
                bits = mock.Mock(words=lambda *_, row=row: row)
                ((_, third, _),) = shamir.share([secret], 3, 2, bits)
                seen += _numbers(third)
            self.assertEqual(sorted(seen[:_P]), list(range(_P)))

    def test_a_word_too_many_is_drawn_again(self):
        words = [np.full(16, 2**32 - 1, np.uint32), np.full(16, 3, np.uint32)]
        bits = mock.Mock(words=lambda block, size, purpose: words[block])
        (shares,) = shamir.share([bytes(32)], 2, 2, bits)
        self.assertEqual(_numbers(shares[0]), [3] * 16)

    def test_shares_that_do_not_belong_together(self):
        # The constant 65536 is no 16 bits.
        share = bytes(32) + b"\xff\xff"
        with self.assertRaisesRegex(ValueError, "do not belong together"):
            shamir.reconstruct((1, 2), [share, share])


if __name__ == "__main__":
    absltest.main()
