"""What a section of a report shows, one after the other: text, tables, pictures."""

import base64
import dataclasses
import numbers

import markdown
import markupsafe
import pandas as pd


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
        return markupsafe.Markup(reader.convert(self.source))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with a caption; fractions are shown with four significant digits."""

    caption: str
    data: pd.DataFrame
    kind = "table"

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The columns: a name, and whether it holds text, which is set to the left."""
        return [
            (
                str(name).replace("_", " "),
                not pd.api.types.is_numeric_dtype(self.data[name]),
            )
            for name in self.data.columns
        ]

    @property
    def rows(self) -> list[list[str]]:
        """The cells as text."""
        return [
            [cell(value) for value in row]
            for row in self.data.itertuples(index=False, name=None)
        ]


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


def cell(value: object) -> str:
    """Returns a value as a page shows it: large numbers in groups of three digits."""
    if isinstance(value, float):
        if pd.isna(value):
            return "–"
        whole = value.is_integer() or abs(value) >= 10_000
        return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return f"{int(value):,}"
    return str(value)
