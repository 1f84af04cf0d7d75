"""Tests of grouping occurrences against plain Python."""

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation import canonical_rows


def _expected(occurrences, by_count):
    """Groups (client, word, count) occurrences with dictionaries."""
    rows = {}
    for client, word, count in occurrences:
        row = rows.setdefault(client, {})
        row[word] = row.get(word, 0) + count
    result = []
    for client in sorted(rows):
        # Dictionaries keep the order of first appearance, and sorting is stable.
        entries = list(rows[client].items())
        if by_count:
            entries.sort(key=lambda item: -item[1])
        result.extend((client, word, count) for word, count in entries)
    return result


class CombineTest(parameterized.TestCase):
    def _check(self, occurrences, by_count, with_counts):
        columns = np.array(occurrences, np.int64).reshape(-1, 3)
        got = canonical_rows.combine(
            columns[:, 0].astype(np.int32),
            columns[:, 1].astype(np.int32),
            columns[:, 2] if with_counts else None,
            by_count,
        )
        entries = list(zip(*(column.tolist() for column in got), strict=True))
        if not with_counts:
            occurrences = [(client, word, 1) for client, word, _ in occurrences]
        self.assertEqual(entries, _expected(occurrences, by_count))

    @settings(derandomize=True, deadline=None, max_examples=400)
    @given(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5)),
            max_size=60,
        ),
        st.booleans(),
        st.booleans(),
    )
    def test_equals_plain_grouping(self, occurrences, by_count, with_counts):
        self._check(occurrences, by_count, with_counts)

    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(
        st.lists(
            st.tuples(
                # Wide values leave no room for a packed 64-bit key.
                st.sampled_from([0, 1, 2**31 - 2]),
                st.sampled_from([0, 3, 2**31 - 1]),
                st.integers(1, 2**31 - 1),
            ),
            max_size=40,
        ),
        st.booleans(),
    )
    def test_wide_values(self, occurrences, by_count):
        self._check(occurrences, by_count, with_counts=True)

    def test_large_input(self):
        rng = np.random.default_rng(0)
        clients = rng.integers(0, 300, 20_000)
        words = rng.zipf(1.3, 20_000) % 1000
        occurrences = [(int(c), int(w), 1) for c, w in zip(clients, words, strict=True)]
        self._check(occurrences, by_count=True, with_counts=False)
        self._check(sorted(occurrences), by_count=True, with_counts=False)


if __name__ == "__main__":
    absltest.main()
