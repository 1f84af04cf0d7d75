"""Tests of the places of held-out sentences, against plain Python."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.columns import client_text
from training.keyboard import target_positions as keyboard_places

_ROWS = [
    ("a", [[5, 6, 7, 8], [9]]),
    ("b", [[4, 4]]),
    ("c", [[1, 5, 6], [7, 8], [5]]),
]
_EOS, _BOS = 3, 2


class PlacesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.text = client_text.ClientText.from_rows(
            self.create_tempdir().full_path + "/text", _ROWS
        )

    @parameterized.parameters((256, 20), (256, 4), (2, 3), (1, 1))
    def test_places(self, max_sentences, max_words):
        judges = np.array([0, 2])
        found = keyboard_places.Places.of(
            self.text, judges, max_sentences, max_words, num_following=2
        )
        row, at = -1, 0
        for client, judge in enumerate(judges):
            for sentence in _ROWS[judge][1][:max_sentences]:
                row += 1
                whole = [*sentence, _EOS]
                inputs = [_BOS, *sentence]
                for column, target in enumerate(whole[: max_words + 1]):
                    if column == max_words and target != _EOS:
                        self.assertEqual(found.inputs[row, column], 0)
                        break
                    self.assertEqual(
                        (found.rows[at], found.columns[at], found.clients[at]),
                        (row, column, client),
                    )
                    self.assertEqual(found.inputs[row, column], inputs[column])
                    self.assertEqual(found.targets[at], target)
                    self.assertEqual(
                        found.following(3)[at].tolist(),
                        [*whole[column:], 0, 0][:3],
                    )
                    self.assertEqual(found.is_typed[at], target != _EOS)
                    self.assertEqual(found.is_known[at], target >= 4)
                    at += 1
        self.assertLen(found.targets, at)
        self.assertLen(found.inputs, row + 1)
        self.assertEqual(np.count_nonzero(found.inputs), at)
        np.testing.assert_array_equal(found.following(1)[:, 0], found.targets)

    def test_sums(self):
        judges = np.array([0, 1])
        found = keyboard_places.Places.of(self.text, judges, 256, 20)
        self.assertEqual(found.sums(np.ones(len(found.rows))).tolist(), [7, 3])
        at = np.array([0, 1, 8])
        self.assertEqual(found.sums(np.array([0.5, 2, 1]), at).tolist(), [2.5, 1])

    def test_bad_judges(self):
        for judges, message in (
            ([], "held_out is empty"),
            ([-1], "held_out has -1 to -1"),
            ([0, 3], "held_out has 0 to 3"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                keyboard_places.Places.of(
                    self.text, np.array(judges, np.int64), 256, 20
                )


if __name__ == "__main__":
    absltest.main()
