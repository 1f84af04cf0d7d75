"""Docstrings as reStructuredText: what people write in them plainly, marked up."""

import re
from typing import Any

# |c| is the size of c, and no substitution; *shape is what a call unpacks.
_BARS = re.compile(r"\|(\S(?:[^|]*\S)?)\|")
_STARS = re.compile(r"(?<=[\[(, ])\*(?=\w)")
# `code`, with what is right behind it, as in `Error`s.
_CODE = re.compile(r"(?<![`:])`([^`]+)`(?!`)(?=(\w?))")


def mark_up(
    app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Changes a docstring's lines in place; see Sphinx's autodoc-process-docstring.

    Args:
        app: The app of Sphinx.
        what: "module", "class" and so on.
        name: Name of the docstring's object.
        found: The object.
        options: The options of the directive.
        lines: The docstring's.
    """
    lines[:] = [_marked_up(line) for line in lines]
    # The docstrings of modules have no sections: what is indented is code, or a table.
    if what == "module":
        lines[:] = _with_literal_blocks(lines)


def _marked_up(line: str) -> str:
    # Code is left as it is.
    parts = re.split(r"(`[^`]+`)", line)
    parts[::2] = [
        _STARS.sub(r"\\*", _BARS.sub(r"\\|\1\\|", part)) for part in parts[::2]
    ]
    return _CODE.sub(
        lambda found: f"``{found[1]}``" + ("\\ " if found[2] else ""), "".join(parts)
    )


def _with_literal_blocks(lines: list[str]) -> list[str]:
    marked: list[str] = []
    in_block = False
    for line in lines:
        is_indented = line.startswith("  ") and (
            in_block or not marked or not marked[-1]
        )
        if is_indented and not in_block:
            marked += ["::", ""]
        if line:
            in_block = is_indented
        marked.append(line)
    return marked
