"""Tests of grouping occurrences against plain Python."""

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.populations.columns import canonical_rows


def _clients(occurrences):
    """Groups (client, word, count) occurrences with dictionaries."""
    clients = {}
    for client, word, count in occurrences:
        row = clients.setdefault(client, {})
        row[word] = row.get(word, 0) + count
    return clients


def _columns(occurrences):
    columns = np.array(occurrences, np.int64).reshape(-1, 3)
    return columns[:, 0].astype(np.int32), columns[:, 1].astype(np.int32), columns[:, 2]


_FEW = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5)), max_size=60
)
# Wide values leave no room for a packed 64-bit key.
_WIDE = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2**31 - 2]),
        st.sampled_from([0, 3, 2**31 - 1]),
        st.integers(1, 2**31 - 1),
    ),
    max_size=40,
)


class RowsTest(parameterized.TestCase):
    def _check(self, occurrences, with_counts, num_clients):
        clients, words, counts = _columns(occurrences)
        got = canonical_rows.rows(
            clients, words, counts if with_counts else None, num_clients
        )
        if not with_counts:
            occurrences = [(client, word, 1) for client, word, _ in occurrences]
        expected = _clients(occurrences)
        self.assertLen(got.row_lengths, num_clients)
        ends = np.cumsum(got.row_lengths)
        entries = list(zip(got.word_ids.tolist(), got.counts.tolist(), strict=True))
        for client in expected.keys() | set(range(min(num_clients, 10))):
            row = expected.get(client, {})
            low, high = ends[client] - got.row_lengths[client], ends[client]
            self.assertEqual(entries[low:high], sorted(row.items()))
            # `max` takes the first of the largest.
            favorite = max(row, key=row.__getitem__) if row else -1
            self.assertEqual(got.favorites[client], favorite)
        self.assertLen(entries, sum(map(len, expected.values())))

    @settings(derandomize=True, deadline=None, max_examples=400)
    @given(_FEW, st.booleans(), st.integers(5, 7))
    def test_equals_plain_grouping(self, occurrences, with_counts, num_clients):
        self._check(occurrences, with_counts, num_clients)

    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(_WIDE)
    def test_wide_words(self, occurrences):
        near = [(client % 3, word, count) for client, word, count in occurrences]
        self._check(near, True, 3)

    def test_large_input(self):
        rng = np.random.default_rng(0)
        clients = rng.integers(0, 300, 20_000)
        words = rng.zipf(1.3, 20_000) % 1000
        occurrences = [(int(c), int(w), 1) for c, w in zip(clients, words, strict=True)]
        self._check(occurrences, False, 300)
        self._check(sorted(occurrences), False, 301)

    def test_without_empty(self):
        rows = canonical_rows.rows(np.array([1, 3, 3]), np.array([7, 2, 5]), None, 5)
        kept = rows.without_empty()
        self.assertEqual(kept.row_lengths.tolist(), [1, 2])
        self.assertEqual(kept.favorites.tolist(), [7, 2])
        self.assertEqual(kept.word_ids.tolist(), [7, 2, 5])


if __name__ == "__main__":
    absltest.main()
