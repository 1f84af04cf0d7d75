"""Scores of found heavy hitters against the simulator's ground truth."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from federated_hh.heavy_hitters import selection as selection_lib
from federated_hh.populations.columns import generated_words, left_out

_CLIENTS_AT_ONCE = 1 << 16
# Of all typed words: an alphabet that loses more loses more words than other settings.
_MANY_LEFT_OUT = 0.05


@dataclasses.dataclass(frozen=True)
class GroundTruth:
    """The true frequencies of a population's words.

    Attributes:
        counts: float64, shape [words]. In the single-word setting the number of
            clients whose most frequent word it is. In the multi-word setting the sum
            of its local frequencies over the clients, n F(w) in Zhu et al. 2020,
            Section 5; of generated clients the expectation of that.
        order: int64, shape [words that occur]: the words by decreasing count, of
            equal counts the one first in the population's table of words first.
    """

    counts: np.ndarray
    order: np.ndarray

    @classmethod
    def of(
        cls,
        population: generated_words.Words,
        selection: selection_lib.WordSelection,
    ) -> "GroundTruth":
        """Counts the words of a population, in the setting of a selection."""
        is_by_favorites = selection is selection_lib.WordSelection.MOST_FREQUENT
        if isinstance(population, generated_words.GeneratedWords):
            counts = (
                population.typing_clients * population.chances / population.ends[-1]
            )
            if is_by_favorites:
                # Few runs have generated clients.
                from federated_hh.heavy_hitters import generated_clients

                counts = generated_clients.favorite_counts(population).astype(float)
        elif is_by_favorites:
            favorites = population.favorites[population.favorites >= 0]
            votes = np.bincount(favorites, minlength=population.num_words)
            counts = votes.astype(np.float64)
        else:
            counts = np.zeros(population.num_words)
            for first in range(0, population.num_clients, _CLIENTS_AT_ONCE):
                last = min(first + _CLIENTS_AT_ONCE, population.num_clients)
                rows = population.rows(np.arange(first, last))
                clients = np.repeat(np.arange(last - first), rows.row_lengths)
                totals = np.bincount(clients, rows.counts, last - first)
                np.add.at(counts, rows.word_ids, rows.counts / totals[clients])
        return cls.of_counts(counts)

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> "GroundTruth":
        """Returns the ground truth of words with known counts.

        Args:
            counts: float64, shape [words].
        """
        order = np.argsort(-counts, kind="stable")
        return cls(counts, order[counts[order] > 0])

    def ranks(self) -> np.ndarray:
        """Returns each word's place in `order`, from 1; 0 for words without count."""
        ranks = np.zeros(len(self.counts), np.int64)
        ranks[self.order] = np.arange(1, len(self.order) + 1)
        return ranks


def scores_at_k(
    found: Sequence[int] | np.ndarray, truth: GroundTruth, ks: Sequence[int]
) -> pd.DataFrame:
    """Scores the words that one run found.

    Two readings of precision are in use. Zhu et al. 2020 ask whether the found words
    are real, and which of the true top K are among all found words; for TrieHH that
    precision is always 1. A ranked list asks which of its first K are in the true
    top K. Both are given.

    Args:
        found: The found words, by decreasing votes; indices into the population's
            words, or -1 for a word that the population does not have.
        truth: The ground truth.
        ks: The values of K, at least 1.

    Returns:
        A row a K, with the columns k; precision, recall and f1 as in the paper; and
        precision_at_k, recall_at_k and f1_at_k of the first K found words.
    """
    ranks = np.append(truth.ranks(), 0)  # the last is for -1
    found_ranks = ranks[np.asarray(found, np.int64)]
    real = np.count_nonzero(found_ranks) / len(found) if len(found) else np.nan
    rows = []
    for k in ks:
        in_top = (found_ranks > 0) & (found_ranks <= k)
        top = min(k, len(truth.order))
        recall = np.count_nonzero(in_top) / top
        hits = np.count_nonzero(in_top[:k])
        listed = min(k, len(found))
        precision_at_k = hits / listed if listed else np.nan
        recall_at_k = hits / top
        rows.append(
            {
                "k": k,
                "precision": real,
                "recall": recall,
                "f1": _harmonic_mean(real, recall),
                "precision_at_k": precision_at_k,
                "recall_at_k": recall_at_k,
                "f1_at_k": _harmonic_mean(precision_at_k, recall_at_k),
            }
        )
    return pd.DataFrame(rows)


def _harmonic_mean(precision: float, recall: float) -> float:
    if np.isnan(precision) or precision + recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def mean_and_interval(
    repeats: Sequence[pd.DataFrame], key: str, confidence: float = 0.95
) -> pd.DataFrame:
    """Averages tables of scores over repeats, with Student t intervals.

    Args:
        repeats: A table a repeat, with the same values of `key` in the same order.
        key: The column that names the rows.
        confidence: The confidence of the intervals, in (0, 1).

    Returns:
        A table with `key` and, for every other column c, c, c_low and c_high: the
        mean over the repeats and the ends of its interval, which are empty where
        there is only one repeat. A repeat without a value (no word was found) does
        not count.
    """
    result = pd.DataFrame({key: repeats[0][key]})
    for column in repeats[0].columns.drop(key):
        values = np.stack([table[column].to_numpy(float) for table in repeats])
        counted = np.count_nonzero(~np.isnan(values), axis=0)
        mean = np.full(values.shape[1], np.nan)
        half = np.full(values.shape[1], np.nan)
        some, several = counted > 0, counted > 1
        mean[some] = np.nanmean(values[:, some], axis=0)
        error = np.nanstd(values[:, several], axis=0, ddof=1)
        error /= np.sqrt(counted[several])
        half[several] = error * stats.t.ppf((1 + confidence) / 2, counted[several] - 1)
        result[column] = mean
        result[f"{column}_low"] = mean - half
        result[f"{column}_high"] = mean + half
    return result


def discovery_rates(
    found: Sequence[Sequence[int] | np.ndarray], truth: GroundTruth, num_words: int
) -> pd.DataFrame:
    """Counts in how many repeats each of the most frequent words was found.

    Args:
        found: The words that each repeat found, as in `scores_at_k`.
        truth: The ground truth.
        num_words: Number of the most frequent words to list.

    Returns:
        A row a word, by decreasing count, with the columns word_id, true_count,
        true_rank and discovery_rate.
    """
    times = np.zeros(len(truth.counts) + 1, np.int64)  # the last is for -1
    for words in found:
        np.add.at(times, np.asarray(words, np.int64), 1)
    listed = truth.order[:num_words]
    return pd.DataFrame(
        {
            "word_id": listed,
            "true_count": truth.counts[listed],
            "true_rank": np.arange(1, len(listed) + 1),
            "discovery_rate": times[listed] / len(found),
        }
    )


def alphabet_advice(population: generated_words.Words) -> str:
    """Returns the advice to widen the alphabet, where it loses many words, else ""."""
    lost = left_out.LeftOut.of(population)
    is_much = lost is not None and lost.share > _MANY_LEFT_OUT
    return f"Most helpful change: more letters. {lost}" if is_much else ""


def truth_text(population: generated_words.Words) -> str:
    """Returns sentences on the truth of scores, after a blank, or ""."""
    generated = ""
    if isinstance(population, generated_words.GeneratedWords):
        generated = (
            " Clients are generated: the truth is what their law gives on average (of "
            "favorites, exact counts)."
        )
    lost = left_out.LeftOut.of(population)
    if lost is None:
        return generated
    # As Markdown: a flag may have stars and underscores.
    before, flag, after = str(lost).partition("--alphabet=")
    flag, keeps, after = (flag + after).partition(" keeps ")
    told = f" {before}`{flag}`{keeps}{after}" if keeps else f" {lost}"
    return f"{generated}{told} Scores count the other words only."
