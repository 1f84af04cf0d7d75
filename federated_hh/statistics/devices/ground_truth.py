"""The true contents of simulated devices, to compare estimates with."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from federated_hh.statistics.recipes import events


@dataclasses.dataclass(frozen=True)
class Holders:
    """The number of holders of each n-gram of known words, or each pair with a group.

    Attributes:
        counts: Counts by n-gram, or by n-gram and group, the most frequent first.
    """

    counts: dict[str | tuple[str, str], int]

    @property
    def ranks(self) -> dict[str | tuple[str, str], int]:
        """The rank of each, from 1."""
        return {key: rank for rank, key in enumerate(self.counts, start=1)}

    @classmethod
    def of(
        cls,
        stored: events.NGramEvents,
        length: int,
        groups: np.ndarray | None = None,
        names: Sequence[str] = (),
    ) -> "Holders":
        """Counts the n-grams of some number of words.

        Args:
            stored: The events.
            length: Number of words.
            groups: int64 [devices]: the group of each device; None for no groups.
            names: The names of the groups.
        """
        grams = stored.grams[:, :length]
        owners = np.repeat(np.arange(stored.num_devices), np.diff(stored.splits))
        is_known = (grams >= 0).all(axis=1)
        owners = owners[is_known]
        # A number each: words, then group, then owner.
        codes = np.zeros(len(owners), np.int64)
        for column in grams[is_known].T:
            codes = codes * len(stored.words) + column
        if groups is not None:
            codes = codes * len(names) + groups[owners]
        distinct, code = np.unique(codes, return_inverse=True)
        pairs = np.unique(code.reshape(-1) * stored.num_devices + owners)
        found, counts = np.unique(pairs // stored.num_devices, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        holders: dict[str | tuple[str, str], int] = {}
        for value, count in zip(
            distinct[found[order]].tolist(), counts[order].tolist(), strict=True
        ):
            group = 0
            if groups is not None:
                value, group = divmod(value, len(names))
            words = []
            for _ in range(length):
                value, word = divmod(value, len(stored.words))
                words.append(stored.words[word])
            gram = " ".join(reversed(words))
            holders[gram if groups is None else (gram, names[group])] = count
        return cls(holders)


@dataclasses.dataclass(frozen=True)
class Seconds:
    """The seconds before words, of a device drawn at random and one of its events.

    Attributes:
        values: float64 [events], ascending.
        below: float64 [events]: the share at or below each.
    """

    values: np.ndarray
    below: np.ndarray

    @classmethod
    def of(cls, stored: events.NGramEvents) -> "Seconds":
        """Sorts the events of all devices."""
        order = np.argsort(stored.seconds)
        sizes = np.diff(stored.splits)
        weights = np.repeat(1 / np.maximum(sizes, 1), sizes)[order]
        below = np.cumsum(weights)
        return cls(stored.seconds[order].astype(np.float64), below / below[-1])

    def at(self, values: np.ndarray) -> np.ndarray:
        """Returns the share below each value."""
        return np.append(0.0, self.below)[np.searchsorted(self.values, values)]

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Returns the least values with at least given shares at or below them."""
        return self.values[np.searchsorted(self.below, shares)]
