"""Tests of keyed streams of bits: against SHAKE256, uniform, none like another."""

import hashlib
import itertools

import numpy as np
from absl.testing import absltest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from federated_hh.randomness import streams


class KeyedBitsTest(absltest.TestCase):
    def test_it_is_shake256_of_the_key_and_the_path(self):
        # By hand: "noise", 7 and the bytes 01 02, block 3 of the purpose "".
        text = b"federated simulation, keyed bits, version 1" + bytes([5]) + bytes(15)
        text += bytes(136 - len(text))
        for kind, data in (
            (b"s", b"noise"),
            (b"i", b"7"),
            (b"b", b"\1\2"),
            (b"s", b""),
            (b"i", b"3"),
        ):
            text += kind + bytes([len(data)]) + bytes(7) + data
        bits = streams.KeyedBits(5, "noise", 7, b"\1\2")
        self.assertEqual(bits.bytes(3, 50), hashlib.shake_256(text).digest(50))

    def test_streams_differ(self):
        found = [
            streams.KeyedBits(*path).bytes(block, 16, purpose)
            for path in (
                (1,),
                (2,),
                (2**127 + 1,),
                (1, 1),
                (1, "1"),
                (1, b"1"),
                (1, "a", "b"),
                (1, "ab"),
                (1, "a", b"b"),
            )
            for block, purpose in itertools.product((0, 1), ("", "x"))
        ]
        self.assertLen(set(found), 36)
        bits = streams.KeyedBits(1)
        np.testing.assert_array_equal(bits.words(4, 9)[:5], bits.words(4, 5))

    def test_words_are_uniform(self):
        # 2^20 words, each of their bytes: chi-square with 255 degrees of freedom,
        # false alarms below 1e-6 in all.
        words = streams.KeyedBits(3, "uniform").words(0, 1 << 20)
        for column in words.view(np.uint8).reshape(-1, 4).T:
            counts = np.bincount(column, minlength=256)
            self.assertGreater(stats.chisquare(counts).pvalue, 1e-7)

    def test_encryption(self):
        # AES-256 of the counter 0, 1, ... under the stream's bytes, by hand.
        numbers = np.arange(-3, 1002)
        bits = streams.KeyedBits(7, "state")
        found = bits.encrypted(numbers)
        np.testing.assert_array_equal(bits.encrypted(found), numbers)
        counters = b"".join(i.to_bytes(16, "big") for i in range(503))
        block = Cipher(algorithms.AES(bits.bytes(0, 32, "cipher")), modes.ECB())
        pad = np.frombuffer(block.encryptor().update(counters), np.int64)[:1005]
        np.testing.assert_array_equal(found, numbers ^ pad)
        other = streams.KeyedBits(7, "state", 1).encrypted(numbers)
        self.assertFalse(np.any(other == found))

    def test_bad_keys(self):
        for key in (-1, 2**128):
            with self.assertRaisesRegex(ValueError, r"to be in \[0, 2\^128\)"):
                streams.KeyedBits(key)


if __name__ == "__main__":
    absltest.main()
