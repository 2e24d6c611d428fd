"""Freeze the formats of this release: `python -m tests.replay.freeze`, part of `make histories`.

A release that is out, which is one that CHANGELOG.md has a date for, is frozen already and never changes.
"""

import json
import sys
from pathlib import Path

from tests.replay.compare import changes, report
from tests.replay.formats import Formats, formats
from tests.replay.goldens import written
from tests.replay.releases import CURRENT, ROOT, is_released

FROZEN = Path(__file__).parent / "frozen"

WRITTEN = "written"
"""The section of what a release has written in forms that differ each time: it is read, not compared."""


def read(release: str) -> Formats:
    """Return the formats of a release, as it froze them."""
    frozen: Formats = json.loads((FROZEN / f"{release}.json").read_text())
    return frozen


def freeze(release: str = CURRENT) -> str:
    """Write the formats of the code at hand as those of a release; return what has changed since the last time.

    Raises:
        SystemExit: The release is out, and the formats differ from what it has frozen.
    """
    file, now = FROZEN / f"{release}.json", formats()
    before = read(release) if file.exists() else now
    kept = before.pop(WRITTEN, {})
    found = report(changes(before, now), before=f"{release} as frozen", after="the code at hand")
    if found and is_released(release):
        raise SystemExit(f"{found}\n\n{release} is released: raise the version in holdfast/version.py first.")
    now = {**now, WRITTEN: written(kept)}
    file.write_text(json.dumps(now, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return found


if __name__ == "__main__":
    print(freeze() or "nothing has changed", file=sys.stderr)
    print((FROZEN / f"{CURRENT}.json").relative_to(ROOT))
