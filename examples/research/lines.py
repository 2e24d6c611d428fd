"""Files of JSON lines that several processes append to and read: findings and reports."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any


class LinesUnreadable(Exception):
    """A line of the file is not a JSON object."""


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, oldest first; none if it does not exist.

    Raises:
        LinesUnreadable: A line is not a JSON object.
        OSError: The file cannot be read.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH)  # so that a partially written line is not read
            return _parse(opened.read())
    except FileNotFoundError:
        return []


def _parse(text: str) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise LinesUnreadable(f"a line is not JSON: {error}") from None
    if not all(isinstance(line, dict) for line in lines):
        raise LinesUnreadable("a line is not a JSON object")
    return lines


def append_line(file: Path, line: dict[str, Any]) -> None:
    """Append a line, and flush it to disk.

    Raises:
        LinesUnreadable: An existing line cannot be read; the last one may be truncated.
        OSError: The file cannot be written.
    """
    with file.open("a+", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        opened.seek(0)
        _parse(opened.read())
        opened.write(json.dumps(line) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
