"""Tests of keyboard layouts."""

import json
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from training.keyboard import layout as keyboard_layout


class KeyboardLayoutTest(parameterized.TestCase):
    def _read(self, contents):
        path = pathlib.Path(self.create_tempdir().full_path) / "keys.json"
        path.write_bytes(contents)
        return keyboard_layout.KeyboardLayout.read(path)

    def test_qwerty(self):
        layout = keyboard_layout.KeyboardLayout.qwerty()
        keys = "1234567890qwertyuiopasdfghjkl'zxcvbnm"
        centers = layout.centers_of(keys)
        self.assertLen({tuple(center) for center in centers}, len(keys))
        distances = np.linalg.norm(centers[:, np.newaxis] - centers, axis=2)
        np.fill_diagonal(distances, 9)
        # Keys of a width of one do not overlap; "g" lies between "t", "y", "v", "b".
        self.assertEqual(distances.min(), 1)
        near = distances[keys.index("g")]
        self.assertEqual(
            {key for key, d in zip(keys, near, strict=True) if d < 1.2}, set("fhtyv")
        )
        self.assertTrue(layout.can_type("don't"))
        self.assertFalse(layout.can_type("жить"))

    def test_a_letter_with_marks_is_on_the_plain_ones_key(self):
        layout = keyboard_layout.KeyboardLayout.qwerty()
        np.testing.assert_array_equal(layout.centers_of("éå"), layout.centers_of("ea"))
        own = keyboard_layout.KeyboardLayout("own", {"e": (0, 0), "é": (5, 2)})
        np.testing.assert_array_equal(own.centers_of("éeè"), [[5, 2], [0, 0], [0, 0]])

    def test_file(self):
        layout = self._read(json.dumps({"я": [0, 1.5], "x": [-2, 0]}).encode())
        np.testing.assert_array_equal(layout.centers_of("xя"), [[-2, 0], [0, 1.5]])

    def test_a_character_without_key_is_named(self):
        layout = keyboard_layout.KeyboardLayout.qwerty()
        with self.assertRaisesRegex(ValueError, "no key for 'ж' of the word 'жaж'"):
            layout.centers_of("жaж")
        with self.assertRaisesRegex(
            ValueError,
            r"QWERTY has no key for 'ß' \(U\+00DF\) of the word 'daß'; 2 words of the "
            "vocabulary .* --layout .* --unkeyed_words=leave_out",
        ):
            layout.check_has(["das", "daß", "щи"])
        layout.check_has(["das"])

    @parameterized.parameters(
        (b"{", "it has to be JSON such as"),
        (b"\xff", "it has to be JSON such as"),
        (b"[1]", "it has to be JSON such as"),
        (b'{"a": [0, 0], "a": [1, 1]}', "'a' is a duplicate"),
        (b"{}", "it has no key"),
        (b'{"ab": [0, 0]}', "'ab' has 2 characters"),
        (b'{"a": [0]}', "'a' is at .*two numbers, x and y, in key widths"),
        (b'{"a": [0, NaN]}', "'a' is at .*two numbers, x and y, in key widths"),
        (b'{"a": [0, true]}', "'a' is at .*two numbers, x and y, in key widths"),
        (b'{"a": [0, 1e200]}', "'a' is at .*at most 1,000"),
        (b'{"a": [0, 1%s]}' % (b"0" * 400), "'a' is at .*at most 1,000"),
        (b'{"a": [0, 0], "b": [40, 0], "c": [80, 0]}', "are 40 apart.*not in pixels"),
        (b'{"a": [0, 0], "b": [0.1, 0], "c": [0.2, 0]}', "are 0.1 apart"),
        (b'{"a": "xy"}', "'a' is at .*two numbers, x and y, in key widths"),
    )
    def test_bad_files(self, contents, message):
        with self.assertRaisesRegex(ValueError, f"keys.json.*{message}"):
            self._read(contents)

    def test_no_file(self):
        with self.assertRaisesRegex(ValueError, "nowhere.json, which cannot be read"):
            keyboard_layout.KeyboardLayout.read("nowhere.json")


if __name__ == "__main__":
    absltest.main()
