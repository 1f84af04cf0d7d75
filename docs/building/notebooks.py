"""Notebooks as Markdown: cells in their order, each with its kept outputs."""

import html
import re
from collections.abc import Iterator
from typing import Any

import nbformat

_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def to_markdown(text: str) -> str:
    """Returns a notebook as Markdown.

    Args:
        text: The file's, JSON.
    """
    notebook = nbformat.reads(text, as_version=4)
    return "\n\n".join(
        part for cell in notebook.cells for part in _of_cell(cell) if part.strip()
    )


def _of_cell(cell: Any) -> Iterator[str]:
    if cell.cell_type != "code":
        yield cell.source
        return
    yield _fenced("python", cell.source)
    for output in cell.outputs:
        yield _of_output(output)


def _of_output(output: Any) -> str:
    if output.output_type == "stream":
        return _fenced("text", _COLORS.sub("", output.text))
    data = output.get("data", {})
    if "image/png" in data:
        about = html.escape(data.get("text/plain", "A plot."))
        image = "".join(data["image/png"].split())
        return f'<img alt="{about}" src="data:image/png;base64,{image}">'
    if "text/html" in data:
        # A blank line would end the block of HTML.
        return re.sub(r"\n\s*\n", "\n", data["text/html"])
    return _fenced("text", data.get("text/plain", ""))


def _fenced(language: str, text: str) -> str:
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"
