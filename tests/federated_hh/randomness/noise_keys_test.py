"""Tests of noise keys: secret, whole, and told apart by their commitment."""

import hashlib
import os
import pathlib
import stat

from absl.testing import absltest, parameterized

from federated_hh.randomness import noise_keys


class NoiseKeyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "secret" / "key"

    def test_written_for_the_user_alone_and_read_back(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        key = noise_keys.NoiseKey.fresh()
        key.write(self.path)
        self.assertEqual(noise_keys.NoiseKey.read(self.path), key)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.path.parent.stat().st_mode), 0o700)
        self.assertEqual(os.listdir(self.path.parent), ["key"])

    def test_fresh_keys_have_128_bits_and_differ(self):
        # All 64 keys below 2^120, or two equal: far below one in 10^30.
        keys = [noise_keys.NoiseKey.fresh().value for _ in range(64)]
        self.assertLen(set(keys), 64)
        self.assertGreater(max(keys), 2**120)
        self.assertLess(max(keys), 2**128)

    def test_commitment_is_the_digest_of_the_files_bytes(self):
        noise_keys.NoiseKey(258, is_secret=True).write(self.path)
        raw = bytes.fromhex(self.path.read_text())
        self.assertEqual(raw, bytes(14) + b"\x01\x02")
        self.assertEqual(
            noise_keys.NoiseKey.read(self.path).commitment,
            hashlib.sha256(raw).hexdigest(),
        )

    def test_key_of_a_seed(self):
        keys = {noise_keys.NoiseKey.of_seed(seed).value for seed in range(100)}
        self.assertLen(keys, 100)
        self.assertEqual(noise_keys.NoiseKey.of_seed(7), noise_keys.NoiseKey.of_seed(7))
        self.assertFalse(noise_keys.NoiseKey.of_seed(7).is_secret)
        self.assertGreater(max(keys), 2**120)

    def test_derived_keys_depend_on_all_bits_and_have_as_many(self):
        keys = [5, 5 + 2**64, 5 + 2**127, 6]
        found = {noise_keys.derived(key, "repeat", n) for key in keys for n in range(8)}
        self.assertLen(found, 32)
        # All 32 below 2^120: far below one in 10^70.
        self.assertGreater(max(found), 2**120)
        self.assertLess(max(found), 2**128)

    def test_repr_does_not_show_it(self):
        key = noise_keys.NoiseKey.fresh()
        self.assertNotIn(str(key.value), repr(key))
        self.assertNotIn(f"{key.value:x}", repr(key))

    @parameterized.parameters(
        b"", b"12", b"g" * 32, b"A" * 32, b"\xff" * 32, b"0" * 33, b"0" * 31 + b" "
    )
    def test_files_without_a_key(self, contents):
        self.path.parent.mkdir()
        self.path.write_bytes(contents)
        with self.assertRaisesRegex(noise_keys.NoiseKeyError, "secret/key"):
            noise_keys.NoiseKey.read(self.path)

    def test_no_file(self):
        with self.assertRaisesRegex(noise_keys.NoiseKeyError, "cannot be read"):
            noise_keys.NoiseKey.read(self.path)

    @parameterized.parameters(-1, 2**128)
    def test_values_out_of_range(self, value):
        with self.assertRaisesRegex(ValueError, "128"):
            noise_keys.NoiseKey(value, is_secret=True)


if __name__ == "__main__":
    absltest.main()
