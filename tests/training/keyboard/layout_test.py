"""Tests of keyboard layouts."""

import json
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.languages import languages
from training.keyboard import layout as keyboard_layout


class KeyboardLayoutTest(parameterized.TestCase):
    def _read(self, contents):
        path = pathlib.Path(self.create_tempdir().full_path) / "keys.json"
        path.write_bytes(contents)
        return keyboard_layout.KeyboardLayout.read(path)

    def test_qwerty(self):
        layout = keyboard_layout.KeyboardLayout.built_in()
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
        layout = keyboard_layout.KeyboardLayout.built_in()
        np.testing.assert_array_equal(layout.centers_of("éå"), layout.centers_of("ea"))
        own = keyboard_layout.KeyboardLayout("own", {"e": (0, 0), "é": (5, 2)})
        np.testing.assert_array_equal(own.centers_of("éeè"), [[5, 2], [0, 0], [0, 0]])

    def test_file(self):
        layout = self._read(json.dumps({"я": [0, 1.5], "x": [-2, 0]}).encode())
        np.testing.assert_array_equal(layout.centers_of("xя"), [[-2, 0], [0, 1.5]])

    def test_a_character_without_key_is_named(self):
        layout = keyboard_layout.KeyboardLayout.built_in()
        with self.assertRaisesRegex(ValueError, "no key for 'ж' of the word 'жaж'"):
            layout.centers_of("жaж")
        with self.assertRaisesRegex(
            ValueError,
            r"QWERTY has no key for 'ß' \(U\+00DF\) of the word 'daß'; 2 words of the "
            "vocabulary .* --layout .* --unkeyed_words=leave_out",
        ):
            layout.check_has(["das", "daß", "щи"])
        layout.check_has(["das"])

    @parameterized.parameters(*languages.codes())
    def test_a_languages_layout_types_its_words(self, code):
        layout = keyboard_layout.KeyboardLayout.of(None, code)
        layout._check_unit()
        self.assertEmpty([c for c in languages.letters(code) if c not in layout])
        words = list(languages.words(code))[:1000]
        self.assertGreater(sum(map(layout.can_type, words)), 980)

    @parameterized.parameters(
        ("de", "z", "qwertz_german"),
        ("fr", "a", "azerty"),
        ("el", "ς", "greek"),
        ("ur", "ظ", "urdu"),
    )
    def test_places_of_keys(self, code, key, name):
        layout = keyboard_layout.KeyboardLayout.of(None, code)
        self.assertEqual(layout.name, name.upper())
        self.assertEqual(layout.centers_of(key)[0, 1], 1)
        by_name = keyboard_layout.KeyboardLayout.of(name, "en")
        np.testing.assert_array_equal(layout.centers_of(key), by_name.centers_of(key))

    def test_letters_behind_others(self):
        hindi = keyboard_layout.KeyboardLayout.of(None, "hi")
        np.testing.assert_array_equal(hindi.centers_of("आ०"), hindi.centers_of("ा0"))
        korean = keyboard_layout.KeyboardLayout.of(None, "ko")
        keys = korean.centers_of("ㄱㅏㅂㅅㅇㅗㅏㅅ")
        np.testing.assert_array_equal(korean.centers_of("값왔"), keys)
        arabic = keyboard_layout.KeyboardLayout.of(None, "ar")
        marked = arabic.centers_of("ب\u064e")
        np.testing.assert_array_equal(marked, arabic.centers_of("ب"))

    @parameterized.parameters(
        (b"{", "it has to be JSON such as"),
        (b"\xff", "it has to be JSON such as"),
        (b"[1]", "it has to be JSON such as"),
        (b'{"a": [0, 0], "a": [1, 1]}', "'a' is there twice"),
        (b"{}", "it has no key"),
        (b'{"ab": [0, 0]}', "'ab' has 2 characters"),
        (b'{"a": [0]}', "'a' is at .*two numbers, x and y, in key widths"),
        (b'{"a": [0, NaN]}', "it has NaN, which is no number of JSON"),
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
