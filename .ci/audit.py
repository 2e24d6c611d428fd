"""Compares locked packages with advisories that are at hand. It uses no network.

    python .ci/audit.py FOLDER requirements/runtime.lock …

FOLDER has advisories in OSV's format, as JSON or YAML, such as a clone of github.com/pypa/advisory-database. Exit code
1 names each package with a known vulnerability, the advisory, and the version that is free of it.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pinned(locks: list[Path]) -> dict[str, set[Version]]:
    """The packages of the lock files, with their versions."""
    found: dict[str, set[Version]] = {}
    for lock in locks:
        for name, version in PIN.findall(lock.read_text(encoding="utf-8")):
            found.setdefault(canonicalize_name(name), set()).add(Version(version))
    return found


def advisories(folder: Path) -> Iterator[dict[str, Any]]:
    """The advisories in a folder that count: none that was withdrawn."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".json", ".yaml", ".yml") and file.is_file():
            text = file.read_text(encoding="utf-8")
            read = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
            if isinstance(read, dict) and "affected" in read and not read.get("withdrawn"):
                yield read


def affects(affected: dict[str, Any], version: Version) -> str | None:
    """Return the version that is free of a vulnerability; empty if there is none, None if this one is free of it."""
    if str(version) in affected.get("versions", ()):
        return next((fixed for _, fixed in _ranges(affected) if fixed and Version(fixed) > version), "")
    for introduced, fixed in _ranges(affected):
        if _reaches(version, introduced) and not (fixed and _reaches(version, fixed)):
            return fixed
    return None


def _ranges(affected: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of the version that has a vulnerability first, and the first that has it no more; empty for none."""
    for each in affected.get("ranges", ()):
        if each.get("type") != "ECOSYSTEM":
            continue
        introduced = ""
        for event in each.get("events", ()):
            if "introduced" in event:
                introduced = event["introduced"]
            elif "fixed" in event:
                yield introduced, event["fixed"]
                introduced = ""
        if introduced:
            yield introduced, ""


def _reaches(version: Version, first: str) -> bool:
    try:
        return first == "0" or version >= Version(first)
    except InvalidVersion:
        return True  # a fault of the advisory must not hide it


def main() -> int:
    """Audit the lock files."""
    folder, locks = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    packages, seen, found = pinned(locks), 0, []
    for advisory in advisories(folder):
        seen += 1
        for affected in advisory["affected"]:
            named = affected.get("package", {})
            if named.get("ecosystem") != "PyPI":
                continue
            for version in packages.get(canonicalize_name(named["name"]), ()):
                if (fixed := affects(affected, version)) is not None:
                    advice = f"fixed in {fixed}" if fixed else "no version is free of it"
                    found.append(f"{named['name']} {version}: {advisory['id']}, {advice}")
    if not seen:
        print(f"{folder} has no advisories in OSV's format", file=sys.stderr)
        return 2
    print("\n".join(sorted(set(found))) or f"{len(packages)} packages, {seen} advisories: none applies")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
