"""A fleet of a million devices: the same decisions as `DeviceFleet`, in arrays.

Budgets go through the same `budget.decide`, once for all devices that have spent the
same; queries through the same verification. Rows are encoded for all devices at once,
which is possible for plain queries only: `select age, ngrams from KeyboardNGrams`. The
sum of reports is drawn from its law.
"""

import abc
import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.populations.columns import raw_columns
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.local.device_reports_plan import Batch
from federated_hh.randomness import identities
from federated_hh.statistics.devices import budget, device, fleet
from federated_hh.statistics.recipes import (
    contents,
    device_table,
    events,
    verification,
)
from federated_hh.statistics.recipes import recipe as recipe_lib

_DEVICES_AT_ONCE = 50_000


@identities.identity("VectorFleet")
class VectorFleet(fleet.Fleet):
    """Devices as arrays; see this module's docstring."""

    def __init__(
        self,
        approval: device.Approval,
        stored: events.NGramEvents | device_table.DeviceTable,
    ):
        """Gives every device its events.

        Args:
            approval: Approval that ships with each device.
            stored: Their events.

        Raises:
            ValueError: If there are more n-grams than int64 can number.
        """
        super().__init__(stored.num_devices)
        self._encoder = (
            _GramEncoder(stored)
            if isinstance(stored, events.NGramEvents)
            else _TableEncoder(stored)
        )
        self._approval = approval
        self._events = stored
        self._sandbox = verification.Sandbox(approval.query_class)
        # int64 [devices, columns] a scope; see `budget.COLUMNS`.
        self._spent = {
            scope: np.zeros((stored.num_devices, len(budget.COLUMNS)), np.int64)
            for scope in budget.scopes(approval.policy.fields)
        }

    def spent(self, number: int) -> dict[str, device_policy.Spent]:
        """Returns a device's spent budget, by scope, as `Accountant.spent` does."""
        found = {
            scope: device_policy.Spent(*spent[number].tolist())
            for scope, spent in self._spent.items()
        }
        return {scope: spent for scope, spent in found.items() if spent.reports}

    def _forget(self, cohort: np.ndarray) -> None:
        for spent in self._spent.values():
            spent[cohort] = 0

    def _charge(self, recipe: recipe_lib.Recipe, cohort: np.ndarray) -> None:
        self._admitted(recipe, cohort)

    def _admitted(self, recipe: recipe_lib.Recipe, cohort: np.ndarray) -> np.ndarray:
        """Charges the devices that answer; returns which do: bool [devices]."""
        nobody = np.zeros(len(cohort), bool)
        try:
            fields = self._approval.verify(recipe, self._sandbox)
        except device.RecipeRefusedError:
            return nobody
        names = budget.scopes(fields)
        rows = np.concatenate([self._spent[name][cohort] for name in names], axis=1)
        if (rows == rows[:1]).all():  # as where everybody was asked the same
            kinds, kind = rows[:1], np.zeros(len(rows), np.int64)
        else:
            kinds, kind = np.unique(rows, axis=0, return_inverse=True)
        answers = np.array([self._decide(row, names, fields, recipe) for row in kinds])
        admitted = answers[kind.reshape(-1)]
        if admitted.any():
            cost = dataclasses.astuple(budget.cost_of(self._approval.policy, recipe))
            for name in names:
                self._spent[name][cohort[admitted]] += cost
        return admitted

    def _decide(self, row: np.ndarray, names, fields, recipe) -> bool:
        spent = {
            name: device_policy.Spent(*part.tolist())
            for name, part in zip(names, row.reshape(len(names), -1), strict=True)
        }
        return budget.decide(self._approval.policy, spent, fields, recipe) is None

    def _ask(self, recipe, cohort, chances, stream) -> Batch:
        admitted = self._admitted(recipe, cohort)
        answering = cohort[admitted]
        minimum = recipe.minimum_cohort
        if len(answering) < minimum:
            return Batch(None, len(answering), minimum)
        cells = self.true_cells(recipe, answering, chances[admitted])
        histogram = np.bincount(cells, minlength=recipe.content.num_cells)
        counts = device.randomizer_of(self._approval.policy, recipe).sum_of_reports(
            histogram, stream.seed_sequence("sum of reports")
        )
        return Batch(counts, len(answering), minimum)

    def true_cells(
        self, recipe: recipe_lib.Recipe, numbers: np.ndarray, chances: np.ndarray
    ) -> np.ndarray:
        """Returns `Devices.true_cell` of many devices: int64 [devices].

        Args:
            recipe: The query's.
            numbers: int64 [devices].
            chances: float64 [devices].

        Raises:
            ValueError: If the query does more than to name fields.
        """
        check_plain(recipe.query, self._events.stream.name)
        found = np.zeros(len(numbers), np.int64)  # as who has no events
        have = np.flatnonzero(np.diff(self._events.splits)[numbers])
        for first in range(0, len(have), _DEVICES_AT_ONCE):
            block = have[first : first + _DEVICES_AT_ONCE]
            found[block] = self._chosen(recipe.content, numbers[block], chances[block])
        return found

    def _chosen(self, content: contents.Content, numbers, chances) -> np.ndarray:
        """Returns the cells of devices that each have an event."""
        starts = self._events.splits[numbers]
        sizes = self._events.splits[numbers + 1] - starts
        ends = np.cumsum(sizes)
        firsts = ends - sizes
        places = raw_columns.ranges(starts, sizes)
        owners = np.repeat(np.arange(len(numbers)), sizes)
        cells, uncovered = self._encoder.encode(content, places, numbers[owners])
        fewest = np.minimum.reduceat(uncovered, firsts)
        fits = uncovered == fewest[owners]
        # How many fit before a place, itself counted.
        so_far = np.cumsum(fits)
        before = np.concatenate([[0], so_far])[firsts]
        wanted = (chances * (so_far[ends - 1] - before)).astype(np.int64)
        return cells[np.searchsorted(so_far, before + wanted + 1)]


def check_plain(query: str, table: str = events.STREAM.name) -> None:
    """Raises `ValueError` where an approved query does more than to name fields."""
    if not verification.is_plain(query):
        raise ValueError(
            f"query is {query!r}; vectorised devices answer only 'select ... from "
            f"{table}' with names of fields"
        )


class _Encoder(abc.ABC):
    """`Content.best_cells` of events in arrays."""

    def encode(
        self, content: contents.Content, places: np.ndarray, owners: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns cells, and each one's number of fields that are not covered."""
        cells = np.zeros(len(places), np.int64)
        uncovered = np.zeros(len(places), np.int64)
        for name, kind in content.types.items():
            part = self._cells(name, kind, places, owners)
            cells = cells * kind.num_cells + part
            uncovered += part == 0
        return cells, uncovered

    @abc.abstractmethod
    def _cells(
        self,
        name: str,
        kind: contents.DataType,
        places: np.ndarray,
        owners: np.ndarray,
    ) -> np.ndarray:
        """Returns the cells of a field's values: int64 [places]."""


class _TableEncoder(_Encoder):
    """Encodes each distinct value of a column once."""

    def __init__(self, stored: device_table.DeviceTable):
        # Codes of the rows' values; -1, the last value, is of missing ones.
        self._columns: dict[str, tuple[np.ndarray, list[Any]]] = {}
        for name, column in stored.columns.items():
            codes, values = pd.factorize(column)
            self._columns[name.lower()] = codes, [*values, None]

    def _cells(self, name, kind, places, owners) -> np.ndarray:
        codes, values = self._columns[name.lower()]
        return np.array([*map(kind.cell, values)], np.int64)[codes[places]]


class _GramEncoder(_Encoder):
    """Encodes n-grams as numbers."""

    def __init__(self, stored: events.NGramEvents):
        length = stored.grams.shape[1]
        if (len(stored.words) + 2) ** length >= 2**63:
            raise ValueError(
                f"n-grams have {length} words of {len(stored.words):,}; vectorised "
                "devices number them with 63 bits: take fewer or shorter ones"
            )
        self.events = stored
        self.place_of = {word: i for i, word in enumerate(stored.words)}

    def _cells(self, name, kind, places, owners) -> np.ndarray:
        if isinstance(kind, contents.PrefixTree) and name == "ngrams":
            return self._of_grams(kind, self.events.grams[places])
        if isinstance(kind, contents.TextType) and name == "ngrams":
            grams, codes = np.unique(
                self.events.grams[places], axis=0, return_inverse=True
            )
            cells = [*map(kind.cell, self.events.texts(grams))]
            return np.array(cells, np.int64)[codes.reshape(-1)]
        if isinstance(kind, contents.BucketedType) and name != "ngrams":
            numbers = self._numbers(name, places, owners)
            return np.searchsorted(kind.boundaries, numbers, side="right")
        # A number is no text, and a text no number.
        return np.zeros(len(places), np.int64)

    def _numbers(self, name: str, places: np.ndarray, owners: np.ndarray) -> np.ndarray:
        if name == "age":
            return self.events.ages[owners]
        return self.events.seconds[places]

    def _of_grams(self, tree: contents.PrefixTree, grams: np.ndarray) -> np.ndarray:
        # What a word is among the tokens, with -1 for an unknown one; by the word's
        # place in the vocabulary, from NONE on.
        token_of = np.full(len(self.place_of) + 2, -1, np.int64)
        for token, word in enumerate(tree.tokens):
            if word in self.place_of:
                token_of[self.place_of[word] + 2] = token
        cells = np.zeros(len(grams), np.int64)
        for depth in sorted({len(path) for path in tree.leaves}):
            leaves = self._leaves(tree, depth)
            if depth > grams.shape[1] or not leaves:
                continue
            codes = np.array(sorted(leaves))
            mine = self._codes(grams[:, :depth])
            at = np.minimum(np.searchsorted(codes, mine), len(codes) - 1)
            matches = codes[at] == mine
            leaf = np.array([leaves[code] for code in codes.tolist()])[at[matches]]
            branch = np.zeros(len(leaf), np.int64)
            if depth < grams.shape[1]:
                last = grams[matches, depth]
                branch = np.where(last == events.NONE, 0, token_of[last + 2] + 2)
            cells[matches] = 1 + leaf * tree.branches + branch
        return cells

    def _leaves(self, tree: contents.PrefixTree, depth: int) -> dict[int, int]:
        """Returns the leaves of a depth by the code of their path."""
        found = {}
        for leaf, path in enumerate(tree.leaves):
            if len(path) == depth and all(word in self.place_of for word in path):
                words = np.array([[self.place_of[word] for word in path]], np.int32)
                found[int(self._codes(words.reshape(1, depth))[0])] = leaf
        return found

    def _codes(self, grams: np.ndarray) -> np.ndarray:
        """Returns a number for each sequence of words: int64 [sequences]."""
        codes = np.zeros(len(grams), np.int64)
        for column in grams.T:
            codes = codes * (len(self.place_of) + 2) + column + 2
        return codes
