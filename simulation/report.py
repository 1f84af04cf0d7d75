"""A run's report: one HTML page that needs nothing beside it."""

import base64
import dataclasses
import pathlib
from collections.abc import Sequence

import jinja2
import markdown
import markupsafe
import pandas as pd


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its name, and whether it holds text (set to the left)."""

    name: str
    is_text: bool


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with a caption; fractions are shown with four significant digits."""

    caption: str
    data: pd.DataFrame

    @property
    def columns(self) -> list[Column]:
        """The columns, with their underscores as spaces."""
        return [
            Column(
                str(name).replace("_", " "),
                not pd.api.types.is_numeric_dtype(self.data[name]),
            )
            for name in self.data.columns
        ]

    @property
    def rows(self) -> list[list[str]]:
        """The cells as text."""
        return [
            [_cell(value) for value in row]
            for row in self.data.itertuples(index=False, name=None)
        ]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with a caption."""

    caption: str
    png: bytes

    @property
    def base64(self) -> str:
        """The picture as the text of a data URL."""
        return base64.b64encode(self.png).decode()


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report: Markdown text, then tables, then figures.

    Attributes:
        title: Its heading.
        text: Markdown.
        tables: Below the text.
        figures: Below the tables.
        covered: Whether the run's guarantee covers all of it. Else the page says that
            it is the simulator's knowledge.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    _: dataclasses.KW_ONLY
    covered: bool


def _cell(value: object) -> str:
    if isinstance(value, float):
        if pd.isna(value):
            return "–"
        whole = value.is_integer() or abs(value) >= 10_000
        return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Returns the page.

    Args:
        title: Its heading.
        subtitle: The line below.
        sections: Its parts. What their texts hold of HTML is shown, not obeyed:
            words that clients typed may be in them.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["markdown"] = _to_html
    template = environment.get_template("report.html")
    return template.render(title=title, subtitle=subtitle, sections=sections)


def _to_html(text: str) -> markupsafe.Markup:
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(
        markdown.markdown(escaped, extensions=["tables", "fenced_code", "sane_lists"])
    )
