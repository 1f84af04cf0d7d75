"""Settings of Sphinx for the documents' site; see CONTRIBUTING.md."""

import pathlib
import sys
import tomllib

_HERE = pathlib.Path(__file__).resolve().parent
# The packages, for their docstrings; and what makes pages at the build.
sys.path[:0] = [str(_HERE.parent), str(_HERE)]

from federated_hh.runtime.worker import startup  # noqa: E402

startup.silence_tensorflow()  # before docstrings are read

_PROJECT = tomllib.loads((_HERE.parent / "pyproject.toml").read_text())["project"]

project = "Federated simulations for a keyboard"
author = "its authors"
release = _PROJECT["version"]
html_title = f"{project} {release}"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes = False  # --flags stay as they are typed
html_copy_source = False
html_show_copyright = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "building.pages",
]
# A notebook becomes Markdown as it is read: see building/pages.py.
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".ipynb": "markdown"}
# A page for each module that reference/api.md lists.
templates_path = ["templates"]
exclude_patterns = ["templates"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # they are in the signatures' own words
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
