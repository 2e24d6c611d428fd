"""Published releases: their recorded histories and frozen formats never change."""

import re
from pathlib import Path

import holdfast

ROOT = Path(__file__).parents[2]

CURRENT = holdfast.__version__


def is_released(version: str, changelog: str | None = None) -> bool:
    """Return whether the changelog gives that version a date.

    Args:
        version: Such as `0.1.0`.
        changelog: The changelog's text; None for CHANGELOG.md.
    """
    text = (ROOT / "CHANGELOG.md").read_text() if changelog is None else changelog
    return bool(re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", text, re.MULTILINE))
