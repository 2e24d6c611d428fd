"""How `make docs` builds the site: offline, from the Markdown that GitHub shows as it is.

The source folder is the whole checkout, so that pages may link to the changelog, the measurements and the examples. The
tree of pages follows from the lists in the index pages: see `add_tree`.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast import __version__

project = "Holdfast"
author = "The Holdfast authors"
release = version = __version__
project_copyright = "The Holdfast authors. Apache License 2.0"

root_doc = "docs/index"
sys.path.append(str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "readable_types"]
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

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "model_config"}

html_theme = "furo"
html_title = f"Holdfast {version}"
html_static_path = ["style"]
html_css_files = ["tables.css"]
html_extra_path = [str(Path(__file__).parent / "site")]
html_show_sourcelink = False
html_copy_source = False

MENU = {
    "Learn": ["tutorial/index", "how-to/index"],
    "Look up": ["reference/index"],
    "Understand": ["explanation/index"],
    "Project": ["/CHANGELOG", "/CONTRIBUTING", "/SECURITY", "/bench/RESULTS", "/examples/*/README"],
}
"""The menu of the site: caption → pages."""

TREES = {
    "docs/tutorial/index": "*",
    "docs/how-to/index": "*",
    "docs/reference/index": "*",
    "docs/reference/errors/index": "*",
    "docs/explanation/index": "*",
    "docs/explanation/decisions": "../adr/*",
}
"""Index page → the pages below it, as a pattern."""


def add_tree(app: Any, docname: str, source: list[str]) -> None:
    """Add the pages below an index: those that it links to, in its order, then the others that fit its pattern."""
    if docname == root_doc:
        source[0] += "".join(_toctree(entries, f":caption: {caption}\n") for caption, entries in MENU.items())
    elif docname in TREES:
        pattern, index = TREES[docname], Path(app.srcdir, docname)
        listed = re.findall(r"\]\(([\w./-]+)\.md\)", source[0])
        inside = [each for each in listed if each.startswith("..") == pattern.startswith("..")]
        found = [f"{Path(pattern).parent}/{page.stem}" for page in sorted(index.parent.glob(f"{pattern}.md"))]
        others = [each.removeprefix("./") for each in found if not each.endswith(f"/{index.name}")]
        source[0] += _toctree(list(dict.fromkeys([*inside, *others])))


def _toctree(entries: list[str], options: str = "") -> str:
    return "\n\n```{toctree}\n:hidden:\n:glob:\n" + options + "\n" + "\n".join(entries) + "\n```\n"


def keep_colons(app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon in an attribute's docstring for its type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, which has no colon


def mark_code(app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]) -> None:
    """Show indented examples in docstrings as code; an indented part of a section such as `Args:` is none."""
    last, marked = "", []
    for before, line in pairwise(["", *lines]):
        if line.startswith("    ") and not before.strip() and last and not last.endswith(":"):
            marked += ["::", ""]
            last = ""  # once for each example
        elif line.strip() and not line.startswith(" "):
            last = line
        marked.append(line)
    lines[:] = marked


def setup(app: Any) -> None:
    """Register the handlers, those of docstrings before napoleon's own."""
    app.connect("source-read", add_tree)
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
