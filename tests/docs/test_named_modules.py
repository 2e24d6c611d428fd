"""The pages that lead through the code name existing files."""

import re

from tests.docs.pages import PAGES, ROOT

NAMED = re.compile(r"`((?:holdfast|workflows|activities)/[\w./]*\w)/?`")
CURRENT = [page for page in PAGES if page.parent.name != "adr"]
"""The pages about the code as it is: a decision record names the folders of its time."""
WAY = ROOT / "docs/explanation/way-of-an-approval.md"


def test_every_named_module_is_there() -> None:
    """A path below `holdfast/`, `workflows/` or `activities/` on a page is a file or a folder."""
    named = ((page, path) for page in CURRENT for path in NAMED.findall(page.read_text(encoding="utf-8")))
    assert [(str(page), path) for page, path in named if not (ROOT / path).exists()] == []


def test_the_way_of_an_approval_has_each_file_once_and_in_order() -> None:
    """The steps are numbered without a gap, and no file is two steps."""
    steps = re.findall(r"^\| (\d+) \| `([^`]+)` \|", WAY.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert len({path for _, path in steps}) == len(steps)
