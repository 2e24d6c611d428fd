"""Freeze the formats of this release: `python -m tests.replay.freeze`, part of `make histories`.

A published release, which is one that CHANGELOG.md has a date for, is frozen already and never changes.
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
"""The section of a release's output in forms that differ each time: it is read, not compared."""


def read(release: str) -> Formats:
    """Return the frozen formats of a release."""
    frozen: Formats = json.loads((FROZEN / f"{release}.json").read_text())
    return frozen


def freeze(release: str = CURRENT) -> str:
    """Write the formats of the current code as those of a release; return the changes since the last time.

    Raises:
        SystemExit: The release is published, and the formats differ from its frozen ones.
    """
    file, now = FROZEN / f"{release}.json", formats()
    before = read(release) if file.exists() else now
    kept = before.pop(WRITTEN, {})
    differences = report(changes(before, now), before=f"{release} as frozen", after="the code at hand")
    if differences and is_released(release):
        raise SystemExit(f"{differences}\n\n{release} is released: raise the version in holdfast/version.py first.")
    now = {**now, WRITTEN: written(kept)}
    file.write_text(json.dumps(now, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return differences


if __name__ == "__main__":
    print(freeze() or "nothing has changed", file=sys.stderr)
    print((FROZEN / f"{CURRENT}.json").relative_to(ROOT))
