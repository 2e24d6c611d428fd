"""The tables of promises and their tests name existing tests."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGES = ("explanation/security.md", "how-to/share-a-machine.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_named_test_is_there(page: str) -> None:
    """Renaming a test file would silently leave a promise without proof."""
    rows = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(?:tests/\w+/)?(test_\w+)(?:\.py)?`", row)}
    assert named
    assert named <= {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
