"""Tests that grouping on disk, in memory and in plain Python agree."""

import os
import pathlib

import numpy as np
from absl.testing import absltest
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.populations.readers import grouping

# The words added are called otherwise in the rows.
_ID_OF_WORD = (np.arange(300) * 7 + 3) % 300


def _expected(rows, num_clients):
    clients = [{} for _ in range(num_clients)]
    for client, words, count in rows:
        for word in words:
            clients[client][word] = clients[client].get(word, 0) + count
    return [
        (
            sorted((int(_ID_OF_WORD[word]), times) for word, times in row.items()),
            # `max` takes the first of the most frequent ones.
            int(_ID_OF_WORD[max(row, key=row.__getitem__)]) if row else -1,
        )
        for row in clients
    ]


class GrouperTest(absltest.TestCase):
    def _group(self, rows, num_clients, entries_in_memory):
        directory = pathlib.Path(self.create_tempdir().full_path)
        grouper = grouping.Grouper(directory, entries_in_memory)
        for client, words, count in rows:
            grouper.add(
                np.full(len(words), client, np.int32),
                np.array(words, np.int32),
                np.full(len(words), count) if count > 1 else None,
            )
        num_runs = grouper.num_runs
        result = []
        for made in grouper.rows(num_clients, _ID_OF_WORD):
            ids, counts = made.word_ids.tolist(), made.counts.tolist()
            entries = list(zip(ids, counts, strict=True))
            ends = np.cumsum(made.row_lengths)
            for end, length, favorite in zip(
                ends, made.row_lengths, made.favorites.tolist(), strict=True
            ):
                result.append((entries[end - length : end], favorite))
        self.assertEmpty(os.listdir(directory))
        return result, num_runs

    @settings(derandomize=True, deadline=None, max_examples=150)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, 5),
                st.lists(st.integers(0, 4), max_size=8),
                st.integers(1, 3),
            ),
            max_size=30,
        ),
        st.sampled_from([1, 2, 7, 20]),
    )
    def test_equals_plain_grouping(self, rows, entries_in_memory):
        expected = _expected(rows, 6)
        in_memory, num_runs = self._group(rows, 6, 1 << 20)
        self.assertEqual(in_memory, expected)
        self.assertLess(num_runs, 2)
        on_disk, _ = self._group(rows, 6, entries_in_memory)
        self.assertEqual(on_disk, expected)

    def test_many_runs_and_one_client_larger_than_memory(self):
        rng = np.random.default_rng(0)
        rows = []
        for _ in range(3_000):
            client = 7 if rng.random() < 0.5 else int(rng.integers(500))
            words = rng.integers(0, 300, rng.integers(6)).tolist()
            rows.append((client, words, 1))
        on_disk, num_runs = self._group(rows, 500, 100)
        self.assertGreater(num_runs, 50)
        self.assertEqual(on_disk, _expected(rows, 500))

    def test_counts_beyond_32_bits_are_not_wrapped(self):
        rows = [(0, [0], 2**31 - 1)] * 3
        for entries_in_memory in (1, 100):
            result, _ = self._group(rows, 1, entries_in_memory)
            self.assertEqual(result, [([(3, 3 * (2**31 - 1))], 3)])

    def test_no_rows(self):
        self.assertEqual(self._group([], 0, 10), ([], 0))
        self.assertEqual(self._group([], 2, 10), ([([], -1)] * 2, 0))


if __name__ == "__main__":
    absltest.main()
