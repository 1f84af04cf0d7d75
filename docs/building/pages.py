"""A Sphinx extension: fills pages with what the code says, and reads notebooks.

A line `<!-- made at build: NAME -->` of a page is replaced by Markdown.
"""

import re
from typing import Any

from building import docstrings, notebooks, programs

_MARK = re.compile(r"^<!-- made at build: (?P<name>\w+) -->$", re.MULTILINE)
_PARTS = {
    "programs": programs.programs,
    "studies": programs.studies,
    "other_programs": programs.other_programs,
    "shared_options": programs.shared_options,
    "console_scripts": programs.console_scripts,
}


def _read(app: Any, name: str, source: list[str]) -> None:
    """Replaces a page's text as Sphinx reads it."""
    if str(app.env.doc2path(name)).endswith(".ipynb"):
        source[0] = notebooks.to_markdown(source[0])
    source[0] = _MARK.sub(lambda found: _PARTS[found["name"]](), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension; Sphinx calls it."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", docstrings.mark_up, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
