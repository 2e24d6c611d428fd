"""The documentation's pages, read with a Markdown parser: their links, headings and snippets."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("README.md")])
"""Pages to be read on GitHub and on the site."""


class Snippet(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def place(self) -> str:
        """Return file and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """Return the path in a first line such as `# mycompany/agents.py`; empty if there is none."""
        match = re.match(r"(?:#|//) ([\w/]+\.\w+)\n", self.code)
        return match[1] if match else ""


@cache
def tokens(page: Path) -> list[Token]:
    """Parse a page."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


@cache
def snippets(page: Path) -> list[Snippet]:
    """Return a page's fenced blocks; only blocks are parsed, as all pages are read while tests are collected."""
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    fences = (token for token in parser.parse(page.read_text(encoding="utf-8")) if token.type == "fence")
    return [Snippet(page, (token.map or [0])[0] + 1, token.info.strip(), token.content) for token in fences]


def files(page: Path) -> dict[str, str]:
    """Return the files that a page prints, with their paths."""
    return {snippet.file: snippet.code for snippet in snippets(page) if snippet.file}


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links and images."""
    for token in tokens(page):
        for child in token.children or ():
            for name in ("href", "src"):
                if target := child.attrGet(name):
                    yield unquote(str(target))


def headings(page: Path) -> set[str]:
    """Return the headings of a page, below its title."""
    return {
        inline.content
        for heading, inline in pairwise(tokens(page))
        if heading.type == "heading_open" and heading.tag != "h1"
    }


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    slugs = set()
    for heading, inline in pairwise(tokens(page)):
        if heading.type == "heading_open":
            text = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
            slug = heading_slug(text)
            slugs.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return slugs


def heading_slug(text: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
