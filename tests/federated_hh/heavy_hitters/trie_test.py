"""Tests of the prefixes learned so far."""

import json

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import trie as trie_lib

_AB = alphabet_lib.Alphabet("ab")  # a is 0, b is 1, the end is 2


def _grown() -> trie_lib.PrefixTrie:
    trie = trie_lib.PrefixTrie(_AB)
    trie = trie.extend([0, 1], [9, 8])  # a, b
    return trie.extend([5, 0, 3], [3, 7, 4])  # b$, aa, ba


class PrefixTrieTest(parameterized.TestCase):
    def test_root_alone(self):
        trie = trie_lib.PrefixTrie(_AB)
        self.assertEqual((trie.depth, trie.num_candidates), (0, 3))
        table, first = trie.transitions()
        np.testing.assert_array_equal(table, [[-1, -1]])
        self.assertEqual(first, 0)

    def test_grows_by_a_level(self):
        trie = _grown()
        np.testing.assert_array_equal(trie.frontier(), [[0, 0], [1, 0]])
        self.assertEqual((trie.depth, trie.num_candidates), (2, 6))
        self.assertEqual(trie.words(), [trie_lib.Word("b", 2, 3)])

    def test_transitions_lead_along_every_prefix(self):
        table, first = _grown().transitions()
        # Nodes: 0 the root, 1 a, 2 b, 3 aa, 4 ba; b$ is no node.
        np.testing.assert_array_equal(
            table, [[1, 2], [3, -1], [4, -1], [-1, -1], [-1, -1]]
        )
        self.assertEqual(first, 3)

    def test_all_words_completed_leaves_no_candidates(self):
        trie = trie_lib.PrefixTrie(_AB).extend([0], [5]).extend([2], [5])
        self.assertEqual(trie.num_candidates, 0)
        table, first = trie.transitions()
        self.assertEqual((table.shape, first), ((2, 2), 2))

    def test_candidates_of_words(self):
        trie = _grown()
        words = ["aa", "aab", "ab", "b", "baab", "bab", ""]
        # The frontier is aa and ba: aa$ is 2, aab 1, baa 3, bab 4; the others' first
        # two symbols were not learned, or are a word that is complete.
        np.testing.assert_array_equal(
            trie.candidates_of(_AB.encode(words, 4)), [2, 1, -1, -1, 3, 4, -1]
        )
        root = trie_lib.PrefixTrie(_AB)
        np.testing.assert_array_equal(
            root.candidates_of(_AB.encode(words, 4)), [0, 0, 0, 1, 1, 1, 2]
        )

    def test_survives_json(self):
        trie = _grown()
        values = json.loads(json.dumps(trie.to_json()))
        again = trie_lib.PrefixTrie.from_json(_AB, values)
        self.assertEqual(again.words(), trie.words())
        np.testing.assert_array_equal(again.transitions()[0], trie.transitions()[0])
        self.assertEqual(again.to_json(), trie.to_json())

    @parameterized.parameters(
        ([0, 0], [1, 1], "a duplicate"),
        ([3], [1], r"\[0, 3\)"),
        ([-1], [1], r"\[0, 3\)"),
        ([0, 1], [1], "shape"),
    )
    def test_bad_candidates(self, candidates, votes, message):
        with self.assertRaisesRegex(ValueError, message):
            trie_lib.PrefixTrie(_AB).extend(candidates, votes)


if __name__ == "__main__":
    absltest.main()
