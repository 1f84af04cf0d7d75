"""The cells of one-hot vectors, from a query's rows (McMillan et al. 2022, app. B).

Every type of content has a cell 0 for all other values, "(other)".
"""

import abc
import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.statistics.recipes import store

OTHER, END = "(other)", "end-token"
_ROOT, NULL = "root", "null"
# No recipe has these among its tokens.
RESERVED = (_ROOT, NULL, OTHER, END)
# A vector of more cells is none that devices send.
MOST_CELLS = 2**24


class ContentError(ValueError):
    """Fields of JSON describe no content; the message begins with the field."""


class DataType(abc.ABC):
    """Buckets of one field's values; the first is for all that no other covers.

    Attributes:
        of_texts: Whether the other buckets are of texts, not of numbers.
    """

    of_texts = True

    @property
    @abc.abstractmethod
    def num_cells(self) -> int:
        """Number of buckets, that of uncovered values included."""

    @abc.abstractmethod
    def cell(self, value: Any) -> int:
        """Returns the bucket of a value from a database, or 0."""

    @abc.abstractmethod
    def name(self, cell: int) -> str:
        """Returns the name of a bucket."""

    @abc.abstractmethod
    def to_fields(self) -> dict[str, Any]:
        """Returns its fields in JSON."""


@dataclasses.dataclass(frozen=True)
class BucketedType(DataType):
    """Numbers: a bucket from each boundary to the next, and from the last on.

    Attributes:
        boundaries: Finite and ascending.
    """

    boundaries: tuple[float, ...]
    of_texts = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "BucketedType":
        """Reads it from JSON."""
        given = _field(fields, "boundaries", ("dataType", "boundaries"))
        if not isinstance(given, list) or not given:
            raise ContentError(".boundaries has to be a list that is not empty")
        for value in given:
            if isinstance(value, bool) or not hasattr(value, "__float__"):
                raise ContentError(f".boundaries has {value!r}, which is no number")
        try:
            values = tuple(map(float, given))
        except OverflowError:
            values = (math.inf,)
        if not all(map(math.isfinite, values)):
            raise ContentError(".boundaries has a number that is not finite")
        for low, high in itertools.pairwise(values):
            if low >= high:
                raise ContentError(
                    f".boundaries has {high:g} after {low:g}; they have to ascend"
                )
        return cls(values)

    @property
    def num_cells(self) -> int:
        """One for each boundary, and one for smaller numbers and for no number."""
        return 1 + len(self.boundaries)

    def cell(self, value: Any) -> int:
        """Returns the number of boundaries that are at most the value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0
        if math.isnan(value):
            return 0
        return bisect.bisect_right(self.boundaries, value)

    def name(self, cell: int) -> str:
        """Returns the interval."""
        if cell == 0:
            return OTHER
        low = f"{self.boundaries[cell - 1]:g}"
        if cell == len(self.boundaries):
            return f"[{low}, inf)"
        return f"[{low}, {self.boundaries[cell]:g})"

    def to_fields(self) -> dict[str, Any]:
        """Returns its fields in JSON."""
        return {"dataType": "BucketedType", "boundaries": list(self.boundaries)}


@dataclasses.dataclass(frozen=True)
class TextType(DataType):
    """Texts: a bucket for each of some values, which may have blanks.

    Attributes:
        values: Different texts; a device's value matches in every letter.
    """

    values: tuple[str, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "TextType":
        """Reads it from JSON."""
        given = _field(fields, "values", ("dataType", "values"))
        if not isinstance(given, list) or not given:
            raise ContentError(".values has to be a list that is not empty")
        for value in given:
            if not isinstance(value, str) or not value.strip() or value == OTHER:
                raise ContentError(
                    f".values has {value!r}; it has to have texts that are neither "
                    f"empty nor {OTHER!r}"
                )
        _check_distinct(".values", given)
        return cls(tuple(given))

    @functools.cached_property
    def _cell_of(self) -> dict[str, int]:
        return {value: cell for cell, value in enumerate(self.values, start=1)}

    @property
    def num_cells(self) -> int:
        """One for each value, and one for all others."""
        return 1 + len(self.values)

    def cell(self, value: Any) -> int:
        """Returns the place of the value, from 1."""
        return self._cell_of.get(value, 0)

    def name(self, cell: int) -> str:
        """Returns the value."""
        return self.values[cell - 1] if cell else OTHER

    def to_fields(self) -> dict[str, Any]:
        """Returns its fields in JSON."""
        return {"dataType": "TextType", "values": list(self.values)}


@dataclasses.dataclass(frozen=True)
class PrefixTree(DataType):
    """Sequences of words: each leaf with each token, the end, or an unknown word.

    Attributes:
        leaves: The paths of the leaves, in the order of the tree; the root alone, an
            empty path, where it has no children.
        tokens: The known words, in order.
    """

    leaves: tuple[tuple[str, ...], ...]
    tokens: tuple[str, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "PrefixTree":
        """Reads it from JSON."""
        known = ("dataType", "tree", "tokens")
        tree, given = (_field(fields, name, known) for name in ("tree", "tokens"))
        tokens = _words(".tokens", given)
        if not tokens:
            raise ContentError(".tokens is empty; it has to have a word")
        for word in RESERVED:
            if word in tokens:
                raise ContentError(f".tokens has {word!r}, a name of the tree's own")
        if not isinstance(tree, dict) or _ROOT not in tree:
            raise ContentError(f".tree has to be an object with {_ROOT!r} in it")
        return cls(_leaves(tree, set(tokens)), tokens)

    @functools.cached_property
    def _leaf_of(self) -> dict[tuple[str, ...], int]:
        return {path: index for index, path in enumerate(self.leaves)}

    @functools.cached_property
    def _token_of(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def _depths(self) -> list[int]:
        return sorted({len(path) for path in self.leaves}, reverse=True)

    @functools.cached_property
    def _first_words(self) -> set[str]:
        return {path[0] for path in self.leaves if path}

    @property
    def branches(self) -> int:
        """The number of next words: the end, an unknown word, and each token."""
        return 2 + len(self.tokens)

    @property
    def num_cells(self) -> int:
        """One for all without a leaf, and each leaf with all that can follow it."""
        return 1 + len(self.leaves) * self.branches

    def cell(self, value: Any) -> int:
        """Returns the bucket of a text of words, or 0 where it has no leaf."""
        if not isinstance(value, str):
            return 0
        # No more words than are looked at; what is left over is one more.
        words = tuple(value.split(None, self._depths[0] + 1))
        if self._depths[-1] and (not words or words[0] not in self._first_words):
            return 0
        for depth in self._depths:
            leaf = self._leaf_of.get(words[:depth])
            if len(words) >= depth and leaf is not None:
                first = 1 + leaf * self.branches
                if len(words) == depth:
                    return first
                return first + 2 + self._token_of.get(words[depth], -1)
        return 0

    def path(self, cell: int) -> tuple[str, ...]:
        """Returns a bucket's words, of which the last may be the end or `OTHER`."""
        leaf, branch = divmod(cell - 1, self.branches)
        last = END if branch == 0 else OTHER if branch == 1 else self.tokens[branch - 2]
        return (*self.leaves[leaf], last)

    def name(self, cell: int) -> str:
        """Returns a bucket's words."""
        return " ".join(self.path(cell)) if cell else OTHER

    def to_fields(self) -> dict[str, Any]:
        """Returns its fields in JSON."""
        tree: dict[str, list[str]] = {_ROOT: []}
        for path in self.leaves:
            for depth, token in enumerate(path):
                children = tree.setdefault(" ".join(path[:depth]) or _ROOT, [])
                if token not in children:
                    children.append(token)
        return {"dataType": "PrefixTree", "tree": tree, "tokens": list(self.tokens)}


@dataclasses.dataclass(frozen=True)
class Content:
    """The fields of a query's rows, and the cells of their combinations.

    Attributes:
        types: Types by field, in the order of the combination's structure.

    Raises:
        ContentError: If it has more cells than a report.
    """

    types: Mapping[str, DataType]

    def __post_init__(self):
        if self.num_cells > MOST_CELLS:
            raise ContentError(
                f" has {self.num_cells:,} cells; a report has at most {MOST_CELLS:,}"
            )

    @classmethod
    def of(cls, fields: Any) -> "Content":
        """Reads it from the JSON of `dataTypeContent`.

        Raises:
            ContentError: If it describes none.
        """
        if not isinstance(fields, dict) or not fields:
            raise ContentError(" has to be an object that is not empty")
        types: dict[str, DataType] = {}
        structures: list[tuple[str, ...]] = []
        for name, described in fields.items():
            if not isinstance(described, dict) or "dataType" not in described:
                raise ContentError(f".{name} has to be an object with a dataType")
            kind = described["dataType"]
            try:
                if kind == "CombinationType":
                    known = ("dataType", "structure")
                    given = _field(described, "structure", known)
                    _check_names(".structure", given)
                    structures.append(_words(".structure", given))
                elif isinstance(kind, str) and kind in _TYPES:
                    types[name] = _TYPES[kind](described)
                else:
                    raise ContentError(
                        f".dataType is {kind!r}; it has to be one of "
                        f"{', '.join([*_TYPES, 'CombinationType'])}"
                    )
            except ContentError as error:
                raise ContentError(f".{name}{error}") from None
        return cls(_in_order(types, structures))

    @functools.cached_property
    def num_cells(self) -> int:
        """The cells of a report: the product of those of the fields."""
        return math.prod(kind.num_cells for kind in self.types.values())

    def best_cells(self, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Returns the cells of the rows with the fewest fields that are not covered.

        Args:
            rows: A value for each field, in the order of `types`.

        Returns:
            Cells in the order of the rows; empty without rows.
        """
        if not rows:
            return []
        cells, uncovered = [0] * len(rows), [0] * len(rows)
        columns = zip(*rows, strict=True)
        for column, kind in zip(columns, self.types.values(), strict=True):
            parts, size = [*map(kind.cell, column)], kind.num_cells
            cells = [
                cell * size + part for cell, part in zip(cells, parts, strict=True)
            ]
            if 0 in parts:
                uncovered = [
                    n + (part == 0) for n, part in zip(uncovered, parts, strict=True)
                ]
        fewest = min(uncovered)
        return [cell for cell, n in zip(cells, uncovered, strict=True) if n == fewest]

    def names(self, cell: int) -> dict[str, str]:
        """Returns the name of a cell in each field."""
        found = {}
        for name, kind in reversed(self.types.items()):
            cell, part = divmod(cell, kind.num_cells)
            found[name] = kind.name(part)
        return dict(reversed(found.items()))

    def to_fields(self) -> dict[str, Any]:
        """Returns its fields in JSON."""
        fields = {name: kind.to_fields() for name, kind in self.types.items()}
        if len(fields) > 1:
            structure = {"dataType": "CombinationType", "structure": [*fields]}
            fields["combinations"] = structure
        return fields


_TYPES = {
    "BucketedType": BucketedType.of,
    "PrefixTree": PrefixTree.of,
    "TextType": TextType.of,
}


def _in_order(
    types: Mapping[str, DataType], structures: Sequence[tuple[str, ...]]
) -> dict[str, DataType]:
    """Returns the types as the only combination has them."""
    if not types:
        raise ContentError(" has no field")
    if len(structures) != (len(types) > 1) and not (
        len(types) == 1 and len(structures) == 1
    ):
        raise ContentError(
            f" has {len(structures)} CombinationTypes for {len(types)} fields; it has "
            "to have one where there are several fields"
        )
    structure = structures[0] if structures else tuple(types)
    if sorted(structure) != sorted(types):
        raise ContentError(
            f" has a CombinationType of {', '.join(structure)}; its fields are "
            f"{', '.join(types)}"
        )
    return {name: types[name] for name in structure}


def _leaves(tree: Mapping[str, Any], tokens: set[str]) -> tuple[tuple[str, ...], ...]:
    """Returns the paths of a tree's leaves, from left to right."""
    children = {node: _words(f".tree.{node}", given) for node, given in tree.items()}
    for node, words in children.items():
        for word in words:
            if word != NULL and word not in tokens:
                raise ContentError(f".tree.{node} has {word!r}, which is not in tokens")
    reached, leaves = set(), []

    def visit(path: tuple[str, ...]) -> None:
        node = " ".join(path) or _ROOT
        reached.add(node)
        words = [word for word in children.get(node, ()) if word != NULL]
        for word in words:
            visit((*path, word))
        if not words:
            leaves.append(path)

    try:
        visit(())
    except RecursionError:
        raise ContentError(".tree is too deep") from None
    for node in children.keys() - reached:
        raise ContentError(f".tree.{node} is no node that a path from root leads to")
    return tuple(leaves)


def _words(name: str, given: Any) -> tuple[str, ...]:
    """Returns a list of different texts without white space."""
    if not isinstance(given, list):
        raise ContentError(f"{name} has to be a list")
    for word in given:
        if not isinstance(word, str) or word.split() != [word]:
            raise ContentError(
                f"{name} has {word!r}; it has to have words without white space"
            )
    _check_distinct(name, given)
    return tuple(given)


def _check_names(name: str, given: Any) -> None:
    """Refuses columns that no table has, with names that it can have."""
    words = given if isinstance(given, list) else []
    for word in words:
        if isinstance(word, str) and len(word.split()) > 1:
            raise ContentError(
                f"{name} has {word!r}; columns have names without white space: rename "
                f"it in the table and in the recipe, as to {store.renamed(word)}"
            )


def _check_distinct(name: str, given: Sequence[str]) -> None:
    if len(set(given)) < len(given):
        twice = next(word for word in given if given.count(word) > 1)
        raise ContentError(f"{name} has {twice!r} twice")


def _field(fields: Mapping[str, Any], name: str, known: Sequence[str]) -> Any:
    for unknown in fields.keys() - set(known):
        raise ContentError(f".{unknown} is no field of it")
    if name not in fields:
        raise ContentError(f".{name} is missing")
    return fields[name]
