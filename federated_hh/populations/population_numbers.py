"""Statistics of a population's words: a dozen numbers, with standard errors."""

import dataclasses
from collections.abc import Mapping

import numpy as np

TOPS = (70, 1_000, 10_000, 20_000, 40_000)
_QUARTERS = ("rarest", "rare", "common", "commonest")
_RESAMPLES = 200


@dataclasses.dataclass(frozen=True)
class Rows:
    """Clients' words in memory, like `client_words.ClientWords`.

    Attributes:
        word_ids: Integers [entries], at least 0.
        counts: Integers [entries], at least 1: the word's count at the client.
        row_splits: Integers [clients + 1]: where each client's entries start.
    """

    word_ids: np.ndarray
    counts: np.ndarray
    row_splits: np.ndarray

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.row_splits) - 1

    def owners(self) -> np.ndarray:
        """Returns the client of each entry."""
        return np.repeat(np.arange(self.num_clients), np.diff(self.row_splits))

    def holders(self) -> np.ndarray:
        """Returns the number of clients that have each word, by id."""
        return np.bincount(self.word_ids)


class Numbers:
    """The numbers of a population whose clients all have a word.

    Args:
        rows: Their words.

    Raises:
        ValueError: If there are no clients, or one has no word.
    """

    def __init__(self, rows: Rows):
        lengths = np.diff(rows.row_splits)
        if not len(lengths) or lengths.min() < 1:
            raise ValueError("rows: no client has words; at least one has to")
        owners = rows.owners()
        holders = rows.holders()
        self._num_words = int((holders > 0).sum())

        def by_client(weights, where=slice(None)):
            return np.bincount(owners[where], weights[where], rows.num_clients)

        counts = rows.counts.astype(np.float64)
        self._columns = {
            "words": by_client(counts),
            "distinct": lengths.astype(np.float64),
            "pairs": by_client(counts * (counts - 1)),
        }
        totals = np.bincount(rows.word_ids, counts)
        ranks = np.empty(len(totals), np.int64)
        ranks[np.argsort(-totals, kind="stable")] = np.arange(len(totals))
        for top in self.tops:
            inside = ranks[rows.word_ids] < top
            self._columns[f"top {top}"] = by_client(counts, inside)
        # Quarters of the (client, word) pairs, by the word's number of holders.
        held = holders[rows.word_ids]
        edges = np.quantile(held, [0.25, 0.5, 0.75])
        quarter = np.searchsorted(edges, held, side="left")
        for number in range(4):
            inside = quarter == number
            self._columns[f"times {number}"] = by_client(counts, inside)
            self._columns[f"held {number}"] = by_client(np.ones_like(counts), inside)

    @property
    def tops(self) -> list[int]:
        """The numbers of most frequent words whose share is of interest."""
        return [top for top in TOPS if top < self._num_words]

    def values(self) -> dict[str, float]:
        """Returns the numbers by name; one that there is not is nan."""
        return {"distinct words of all": float(self._num_words)} | self._of(
            self._columns
        )

    def errors(self, rng: np.random.Generator) -> dict[str, float]:
        """Returns standard errors: by bootstrap over the clients.

        The sets of most frequent and of rare words stay those of the population. The
        total number of distinct words has no error: clients drawn twice bring no new
        words.

        Args:
            rng: Draws the clients.
        """
        size = len(self._columns["words"])
        drawn = []
        for _ in range(_RESAMPLES):
            chosen = rng.integers(0, size, size)
            columns = {name: column[chosen] for name, column in self._columns.items()}
            drawn.append(self._of(columns))
        return {"distinct words of all": np.nan} | {
            name: float(np.std([numbers[name] for numbers in drawn], ddof=1))
            for name in drawn[0]
        }

    def _of(self, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
        words, distinct = columns["words"], columns["distinct"]
        pairs = (words * (words - 1)).sum()
        found = {
            "words of a client, mean": words.mean(),
            "words of a client, median": np.median(words),
            "words of a client, sd of the logarithm": np.log(words).std(),
            "distinct words of a client, mean": distinct.mean(),
            "distinct words of a client, median": np.median(distinct),
            "two words of a client are the same": (
                columns["pairs"].sum() / pairs if pairs else np.nan
            ),
            "times that a holder has a word": words.sum() / distinct.sum(),
        }
        for number, quarter in enumerate(_QUARTERS):
            held = columns[f"held {number}"].sum()
            found[f"times, of the {quarter} quarter"] = (
                columns[f"times {number}"].sum() / held if held else np.nan
            )
        for top in self.tops:
            share = columns[f"top {top}"].sum() / words.sum()
            found[f"share of the {top:,} most frequent words"] = share
        return {name: float(value) for name, value in found.items()}
