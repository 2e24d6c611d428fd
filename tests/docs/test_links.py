"""The pages form one site: every link resolves, and every page can be reached."""

import re
import runpy
from pathlib import Path

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links

EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def test_links_resolve() -> None:
    """A relative link names a file of this repository, and an anchor one of its headings."""
    relative = ((page, target) for page in PAGES for target in links(page) if not EXTERNAL.match(target))
    assert [(str(page), target) for page, target in relative if not resolves(page, target)] == []


def resolves(page: Path, target: str) -> bool:
    """Return whether a relative link leads to a file and, in a page, to a heading."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_file() or not file.is_relative_to(ROOT):
        return False
    return not anchor or (file.suffix == ".md" and anchor in anchors(file))


def test_every_page_is_in_a_tree() -> None:
    """Each page is below an index of `docs/conf.py`, and the index links to it, for readers without a menu."""
    trees = runpy.run_path(str(DOCS / "conf.py"))["TREES"]
    assert set(DOCS.rglob("index.md")) - {DOCS / "index.md"} <= {ROOT / f"{index}.md" for index in trees}
    below = {DOCS / "index.md", *((DOCS / target).resolve() for target in links(DOCS / "index.md"))}
    for name, pattern in trees.items():
        index = ROOT / f"{name}.md"
        pages = {page.resolve() for page in index.parent.glob(f"{pattern}.md")} - {index}
        listed = {(index.parent / target).resolve() for target in links(index) if not EXTERNAL.match(target)}
        assert not pages - listed, f"{name}.md has to link to these"
        below |= listed
    above = {page for page in DOCS.rglob("*.md") if page not in below}
    assert not above
