"""Tests of characters as codes."""

import numpy as np
import pyarrow as pa
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.heavy_hitters import alphabet as alphabet_lib

_ABC = alphabet_lib.Alphabet("abc")


class AlphabetTest(parameterized.TestCase):
    def test_end_symbol_then_padding(self):
        np.testing.assert_array_equal(
            _ABC.encode(["ab", "", "cabc", "abc"], 4),
            [[0, 1, 3, 4], [3, 4, 4, 4], [2, 0, 1, 2], [0, 1, 2, 3]],
        )

    def test_longer_words_are_cut_and_have_no_end(self):
        np.testing.assert_array_equal(_ABC.encode(["abcab"], 3), [[0, 1, 2]])

    def test_takes_arrow_columns(self):
        words = pa.array(["b", "ca"], pa.large_string())
        np.testing.assert_array_equal(_ABC.encode(words, 2), [[1, 3], [2, 0]])

    @settings(derandomize=True, max_examples=100, deadline=None)
    @given(st.lists(st.text(alphabet="aé漢😀'", max_size=8)), st.integers(1, 9))
    def test_decode_gives_the_first_characters_back(self, words, length):
        alphabet = alphabet_lib.Alphabet("aé漢😀'")
        codes = alphabet.encode(words, length)
        self.assertEqual(codes.shape, (len(words), length))
        self.assertEqual(
            [alphabet.decode(row) for row in codes], [w[:length] for w in words]
        )
        np.testing.assert_array_equal(
            np.any(codes == alphabet.end, axis=1), [len(w) < length for w in words]
        )

    def test_foreign_character_is_named(self):
        with self.assertRaisesRegex(ValueError, "'abx' has 'x'"):
            _ABC.encode(["ab", "abx"], 3)
        with self.assertRaisesRegex(ValueError, "x00"):
            _ABC.encode(["a\0b"], 3)

    def test_many_words_are_encoded_in_pieces(self):
        words = ["ab", "c", "abcabc"] * 4000
        codes = _ABC.encode(words, 1000)
        np.testing.assert_array_equal(codes, np.tile(codes[:3], (4000, 1)))
        self.assertEqual([_ABC.decode(row) for row in codes[-3:]], words[:3])

    @parameterized.parameters(
        ("aba", "repeats 'a'"), ("", "has 0 characters"), ("a\0", "NUL")
    )
    def test_bad_alphabet(self, characters, message):
        with self.assertRaisesRegex(ValueError, message):
            alphabet_lib.Alphabet(characters)

    def test_length_out_of_range(self):
        with self.assertRaisesRegex(ValueError, "length is 0"):
            _ABC.encode(["a"], 0)


if __name__ == "__main__":
    absltest.main()
