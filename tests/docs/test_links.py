"""The pages form one site: every link leads somewhere, and every page can be reached."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links

TREE = yaml.safe_load((DOCS / "_toc.yml").read_text(encoding="utf-8"))
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """A relative link names a file of this repository, and an anchor one of its headings."""
    broken = [target for target in links(page) if not EXTERNAL.match(target) and not resolves(page, target)]
    assert not broken


def resolves(page: Path, target: str) -> bool:
    """Whether a relative link leads to a file and, in a page, to a heading."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_file() or not file.is_relative_to(ROOT):
        return False
    return not anchor or (file.suffix == ".md" and anchor in anchors(file))


def test_every_page_is_in_the_tree() -> None:
    """`docs/_toc.yml` names each page, or a pattern that fits it; all that it names exists."""
    named = [str(each) for each in entries(TREE["subtrees"])] + [TREE["root"]]
    pages = {str(page.relative_to(ROOT).with_suffix("")) for page in DOCS.rglob("*.md")}
    assert not {page for page in pages if not any(matches(page, each) for each in named)}
    assert not {each for each in named if "*" not in each and not (ROOT / f"{each}.md").exists()}


def entries(tree: Any) -> list[str]:
    """Return the files and patterns of a tree."""
    if isinstance(tree, list):
        return [found for each in tree for found in entries(each)]
    own = [tree[kind] for kind in ("file", "glob") if kind in tree]
    return own + entries(tree.get("entries", []))


def matches(page: str, pattern: str) -> bool:
    """Whether a page fits a pattern, whose `*` stays within a folder."""
    return fnmatch(page, pattern) and page.count("/") == pattern.count("/")


def test_each_guide_is_listed_by_its_index() -> None:
    """On GitHub, where there is no menu, the index of a folder links to each of its pages."""
    for index in DOCS.glob("*/index.md"):
        listed = {(index.parent / target).resolve() for target in links(index) if not EXTERNAL.match(target)}
        missing = set(index.parent.glob("*.md")) - listed - {index}
        assert not missing, index
