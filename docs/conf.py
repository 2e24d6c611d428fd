"""How `make docs` builds the site: offline, from the Markdown that GitHub shows as it is.

The source folder is the whole checkout, so that pages may link to the changelog, the measurements and the examples.
`docs/_toc.yml` has the tree of pages.
"""

from pathlib import Path
from typing import Any

from holdfast import __version__

project = "Holdfast"
author = "The Holdfast authors"
release = version = __version__
project_copyright = "The Holdfast authors. Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_external_toc"]
external_toc_path = "docs/_toc.yml"
include_patterns = [
    "docs/**",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/RESULTS.md",
    "examples/*/README.md",
]
exclude_patterns = [".*", "build", "dist", "holdfast", "requirements", "tests"]

default_role = "code"
"""Docstrings are written in plain Markdown: one backtick is code."""

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = f"Holdfast {version}"
html_extra_path = [str(Path(__file__).parent / "site")]
html_show_sourcelink = False
html_copy_source = False


def keep_colons(app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon in an attribute's docstring for its type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, which has no colon


def setup(app: Any) -> None:
    """Register the handler before napoleon's own."""
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
