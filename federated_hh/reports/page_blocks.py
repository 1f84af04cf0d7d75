"""The blocks of a report's section: text, tables, pictures, tries."""

import base64
import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

import markdown
import markupsafe
import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.reports import fonts, metric_labels, plots

if TYPE_CHECKING:  # imported with the first figure
    from matplotlib import figure as figure_lib

FIRST_ROWS = 10  # of a table that are shown before "show all"
_NARROW_COLUMNS = 5  # of a table that takes half of a wide page
_MOST_WORDS = 2_000  # of a trie
# Outside tags: browsers break lines after the hyphen of an exponent.
_EXPONENT = re.compile(r"\d[\d.]*e-\d+(?![^<]*>)")


def unbroken(text: str) -> markupsafe.Markup:
    """Returns text, or its markup, as HTML that breaks no number over two lines."""
    shown = str(markupsafe.escape(text))
    return markupsafe.Markup(
        _EXPONENT.sub(r'<span class="unbroken">\g<0></span>', shown)
    )


@dataclasses.dataclass(frozen=True)
class Text:
    """Markdown, in which tags are no tags: words that clients typed may be in it."""

    source: str
    kind = "text"

    @property
    def html(self) -> markupsafe.Markup:
        """The text as HTML."""
        extensions = ["tables", "fenced_code", "sane_lists"]
        reader = markdown.Markdown(extensions=extensions, tab_length=2)
        # What is left is escaped when it is written, as are code and flags.
        reader.preprocessors.deregister("html_block")
        for pattern in ("html", "autolink", "automail"):
            reader.inlinePatterns.deregister(pattern)
        return unbroken(markupsafe.Markup(reader.convert(self.source)))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with a caption; the numbers of a column have one format.

    Columns without any value are left out.

    Attributes:
        caption: Above it.
        data: Its rows.
        printed: Columns of texts that are numbers, as bounds that were rounded up.
        names: Columns whose names are shown unchanged, as those of files.
    """

    caption: str
    data: pd.DataFrame
    printed: Sequence[str] = ()
    names: Sequence[str] = ()
    kind = "table"

    @functools.cached_property
    def _shown(self) -> pd.DataFrame:
        if not len(self.data):
            return self.data
        return self.data.loc[:, ~self.data.isna().all(axis="index")]

    @property
    def is_long(self) -> bool:
        """Whether only its first rows are shown at once."""
        return len(self.data) > FIRST_ROWS

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The columns: a name, and whether it holds text, which is set to the left."""
        return [
            (
                str(name) if name in self.names else str(name).replace("_", " "),
                name not in self.printed
                and not pd.api.types.is_numeric_dtype(self._shown[name]),
            )
            for name in self._shown.columns
        ]

    @property
    def rows(self) -> list[list[str]]:
        """The cells as text."""
        columns = [
            tables.aligned(list(self._shown[name]))
            if name in self.printed
            else _column(str(name), self._shown[name])
            for name in self._shown.columns
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def _column(name: str, values: pd.Series) -> list[str]:
    """Returns the cells of a column: numbers with as many decimals as each other.

    Shares are in percent; losses have three decimals, whatever their zeros.
    """
    if pd.api.types.is_float_dtype(values):
        if metric_labels.is_share(name):
            places = _decimals_of_percents(100 * values[np.isfinite(values)].abs())
            return [
                f"{value:.{places}%}" if np.isfinite(value) else tables.shown(value)
                for value in values
            ]
        if metric_labels.is_loss(name):
            return [metric_labels.shown(name, value) for value in values]
        known = values[np.isfinite(values) & (values != 0)].abs()
        decimals = _decimals(known) if len(known) else 0
        if decimals is not None:
            return [
                f"{value:,.{decimals}f}" if np.isfinite(value) else tables.shown(value)
                for value in values
            ]
    return [tables.shown(value) for value in values]


def _decimals_of_percents(known: pd.Series) -> int:
    """Returns one or two decimals; below 1% as many as make three digits."""
    largest = known.max() if len(known) else 0
    if (known == known.round()).all():
        return 0
    if largest >= 10:
        return 1
    return 2 if largest >= 1 else 2 - math.floor(math.log10(largest))


def _decimals(known: pd.Series) -> int | None:
    """Returns the decimals that numbers above 0 need; None where no number will do."""
    largest = known.max()
    if largest >= 1e15:
        return None
    decimals = max(0, 3 - math.floor(math.log10(largest)))
    if known.min() < 10.0 ** (1 - decimals) and not (known == known.round()).all():
        return None  # too small next to the largest
    while decimals and (known.round(decimals - 1) == known.round(decimals)).all():
        decimals -= 1
    return decimals


def guarantees(rows: Sequence[Mapping[str, str]]) -> Table:
    """Returns a table of guarantees, a row each, as `Guarantee.row` has it."""
    return Table("", pd.DataFrame(rows), printed=("epsilon", "delta"))


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture with a caption."""

    caption: str
    png: bytes
    kind = "picture"

    @property
    def base64(self) -> str:
        """The picture as the text of a data URL."""
        return base64.b64encode(self.png).decode()


@dataclasses.dataclass(frozen=True)
class Tree:
    """The prefixes of words, each within its own prefix.

    Attributes:
        words: Distinct ones; of many, the first are shown.
    """

    words: Sequence[str]
    kind = "tree"

    @property
    def html(self) -> markupsafe.Markup:
        """The tree, as nested elements that a browser opens by itself.

        The style of the page draws them as nodes with lines between them.
        """
        shown = sorted(set(self.words[:_MOST_WORDS]))
        return markupsafe.Markup(_level(shown, 0))

    @property
    def note(self) -> str:
        """A note on the number of words left out, or nothing."""
        if len(self.words) <= _MOST_WORDS:
            return ""
        return f"The first {_MOST_WORDS:,} of {len(self.words):,} words."


def _level(words: Sequence[str], depth: int) -> str:
    """Returns the nodes below the first `depth` characters of words, as a list.

    Args:
        words: Sorted words with these characters in common, and longer.
        depth: Number of characters, at least 0.
    """
    branches: dict[str, list[str]] = {}
    for word in words:
        branches.setdefault(word[: depth + 1], []).append(word)
    nodes = []
    for prefix, below in branches.items():
        if len(below) == 1:
            # Nothing branches off any more.
            nodes.append(f"<li>{_node(below[0], is_word=True)}</li>")
            continue
        longer = [word for word in below if word != prefix]
        nodes.append(
            f"<li><details><summary>{_node(prefix, len(longer) < len(below))} "
            f"<small>{len(below):,} words</small></summary>"
            f"{_level(longer, depth + 1)}</details></li>"
        )
    return f"<ul>{''.join(nodes)}</ul>"


def _node(prefix: str, is_word: bool) -> str:
    kind = "node word" if is_word else "node"
    return f'<span class="{kind}">{markupsafe.escape(prefix)}</span>'


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks that a reader opens by their title."""

    title: str
    blocks: Sequence["Block"]
    kind = "fold"


Block: TypeAlias = Text | Table | Picture | Tree | Fold


def has_long_table(blocks: Sequence[Block]) -> bool:
    """Returns whether a table of some blocks shows its first rows only."""
    return any(
        has_long_table(block.blocks) if isinstance(block, Fold) else block.is_long
        for block in blocks
        if isinstance(block, Fold | Table)
    )


class Section:
    """A part of a page, with its blocks; its methods return it.

    Attributes:
        title: Its heading.
        covered: Whether a run's guarantee covers all of it. Else the page says that it
            is the simulator's knowledge.
        blocks: Its blocks from top to bottom.
    """

    def __init__(self, title: str, covered: bool):
        self.title = title
        self.covered = covered
        self.blocks: list[Block] = []

    @property
    def is_wide(self) -> bool:
        """Whether it takes a wide window's whole width, and not a half of it."""
        shown = [b for b in self.blocks if isinstance(b, Picture | Table)]
        return len(shown) > 1 or any(
            isinstance(block, Fold)
            or (isinstance(block, Table) and len(block.columns) > _NARROW_COLUMNS)
            for block in self.blocks
        )

    def text(self, source: str) -> Self:
        """Shows Markdown. HTML in it is shown, not obeyed."""
        self.blocks.append(Text(source))
        return self

    def show(
        self, table: pd.DataFrame, caption: str = "", names: Sequence[str] = ()
    ) -> Self:
        """Shows a table that no file of the section's holds; see `Table`."""
        self.blocks.append(Table(caption, table, names=names))
        return self

    def fold(self, title: str, source: str, *blocks: Block) -> Self:
        """Shows details on demand: blocks, and Markdown below them.

        Args:
            title: The line that opens them.
            source: Markdown.
            *blocks: Blocks above it.
        """
        self.blocks.append(Fold(title, (*blocks, Text(source))))
        return self

    def guarantees(self, rows: Sequence[Mapping[str, str]]) -> Self:
        """Shows guarantees, a row each, as `Guarantee.row` has it."""
        self.blocks.append(guarantees(rows))
        return self

    def tree(self, words: Sequence[str]) -> Self:
        """Shows words as the trie that they make, which opens level by level."""
        self.blocks.append(Tree(words))
        return self

    def picture(self, figure: "figure_lib.Figure") -> Self:
        """Shows a figure; a sentence stands for one that says no more.

        Args:
            figure: The titles of its plots stand where it cannot be seen.
        """
        self._draw(figure)
        return self

    def _draw(self, figure: "figure_lib.Figure") -> Picture | None:
        """Shows a figure and returns the picture; None of one told in a sentence."""
        if not plots.says_something(figure):
            if told := plots.in_words(figure):
                self.text(told)
            return None
        titles = "; ".join(plots.titles(figure))
        numbered = fonts.make_readable(figure)
        shown = Picture(titles, plots.png(figure))
        self.blocks.append(shown)
        if numbered:
            words = ", ".join(f"{name} {word}" for name, word in numbered.items())
            self.text(f"No installed font has the letters of some labels: {words}.")
        return shown
