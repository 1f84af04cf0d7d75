"""Tests of the hashes of words in a row, against windows that are listed one by one."""

import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.columns import client_text
from training.text import text_windows

_OOV = 1


def windows_of(sentence, num_words):
    """Returns the windows as tuples: from a known word to the last one, inclusive."""
    known = [i for i, token in enumerate(sentence) if token != _OOV]
    return [
        tuple(sentence[known[i] : known[i + num_words - 1] + 1])
        for i in range(len(known) - num_words + 1)
    ]


class TextWindowsTest(parameterized.TestCase):
    def text(self, rows):
        folder = pathlib.Path(self.create_tempdir().full_path) / "text"
        return client_text.ClientText.from_rows(folder, rows)

    @parameterized.parameters(1, 2, 3, 5)
    def test_each_window_has_a_hash_of_its_own(self, num_words):
        random = np.random.default_rng(num_words)
        # Few words, so that windows come again, at other places and in other order.
        rows = [
            (
                f"c{client}",
                [
                    random.choice([_OOV, 4, 5, 6], random.integers(1, 9)).tolist()
                    for _ in range(random.integers(1, 20))
                ],
            )
            for client in range(60)
        ]
        limit, text_windows._TOKENS_AT_A_TIME = text_windows._TOKENS_AT_A_TIME, 50
        self.addCleanup(setattr, text_windows, "_TOKENS_AT_A_TIME", limit)
        text = self.text(rows)
        found = [*text_windows.hashes(text, num_words)]
        self.assertGreater(len(found), 20)
        of_windows = [
            (number, window)
            for number, sentence in enumerate(s for _, of in rows for s in of)
            for window in windows_of(sentence, num_words)
        ]
        sentences = np.concatenate([one for one, _ in found])
        self.assertEqual(sentences.tolist(), [number for number, _ in of_windows])
        hashes = np.concatenate([one for _, one in found]).tolist()
        by_window = {}
        for (_, window), value in zip(of_windows, hashes, strict=True):
            self.assertEqual(by_window.setdefault(window, value), value)
        self.assertLen(set(by_window.values()), len(by_window))

    def test_a_sentence_that_is_cut_longer_or_within_another(self):
        line = list(range(10, 50))
        rows = [line, [7, *line], [*line, 7], line[:-1], line[3:17], line[:11], [4, 5]]
        text = self.text([("a", rows)])
        [(sentences, hashes)] = text_windows.hashes(text, 12)
        of_line = np.sort(hashes[sentences == 0])
        self.assertLen(of_line, 29)
        shared = text_windows.is_in(of_line, hashes)
        self.assertEqual(
            np.bincount(sentences[shared], minlength=7).tolist(),
            [29, 29, 29, 28, 3, 0, 0],
        )
        # Both of the longer ones have one window with the word that is new.
        self.assertEqual(np.count_nonzero(~shared), 2)

    def test_is_in(self):
        ascending = np.array([3, 5, 9], np.uint64)
        values = np.array([9, 1, 3, 10, 4], np.uint64)
        self.assertEqual(
            text_windows.is_in(ascending, values).tolist(),
            [True, False, True, False, False],
        )
        self.assertFalse(text_windows.is_in(ascending[:0], values).any())


if __name__ == "__main__":
    absltest.main()
