"""The files tier of a prompt: what an agent left for itself in its workspace, each file by its share of the budget.

Nothing here reads a file: `FileRead` says what was read, or why that could not be. What a file says stands behind `>`,
so that whoever wrote it can pose neither as standing memory nor as another file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.llm.tokens import BYTES_PER_TOKEN, first_of, newest_of, size_of, tokens_of
from holdfast.memory.features import DONE, NAMES
from holdfast.memory.recalled import RecalledTier


class MemoryFile(NamedTuple):
    """One of the files of a workspace that an agent is shown."""

    name: str
    share: int
    """Per cent of the budget; what a file does not need goes to the others, in their order."""
    newest: bool
    """It grows at its end, and the end is what is shown of it."""


MEMORY_FILES = (
    MemoryFile("TASKS.md", 40, newest=False),
    MemoryFile("features.json", 15, newest=False),
    MemoryFile("progress.txt", 20, newest=False),  # its newest entries come first
    MemoryFile("ERRORS.md", 15, newest=True),
    MemoryFile("LEARNINGS.md", 10, newest=True),
)
"""In the order of their importance, which is also that in the prompt."""

FEATURES_BYTES = 1_000_000
"""Of a larger features.json, the beginning is shown as it stands."""

TITLE = "## Files of the workspace, as they were when this run began; what stands behind > is what they say"


@dataclass(frozen=True)
class FileRead:
    """What was read of a file."""

    name: str
    size: int = 0
    """Bytes of the whole file."""
    text: str = ""
    """Its beginning, or its end, as `MemoryFile.newest` says: at least as much as the budget has room for."""
    unread: int = 0
    """Bytes that `text` leaves out."""
    problem: str = ""
    """Why it could not be read; empty if it was."""


def read_ahead(file: MemoryFile, tokens: int) -> int:
    """How many bytes of a file are to be read, for a budget of so many tokens."""
    return FEATURES_BYTES if file.name == "features.json" else tokens * BYTES_PER_TOKEN + 1


def files_tier(found: Sequence[FileRead], tokens: int) -> RecalledTier | None:
    """What the LLM is shown of a workspace's files; None where there are none.

    Args:
        found: Those that are there.
        tokens: The budget.
    """
    if not found or not tokens:
        return None
    reads = {read.name: read for read in found}
    files = [(file, reads[file.name]) for file in MEMORY_FILES if file.name in reads]
    heads = {read.name: _heading(read) for _, read in files}
    bodies = {read.name: _body(read) for _, read in files}
    room = tokens - tokens_of(TITLE) - sum(tokens_of(head) + 1 for head in heads.values())
    needs = {name: tokens_of(_quoted(text)) + (tokens if unread else 0) for name, (text, unread) in bodies.items()}
    rooms = _shared_out(needs, [file for file, _ in files], max(0, room))
    parts, left_out = [TITLE], 0
    for file, read in files:
        text, unread = bodies[read.name]
        shown = _cut(file, text, rooms[read.name], unread)
        left_out += max(0, size_of(text) + unread - size_of(shown))
        parts += [f"{heads[read.name]}\n\n{_quoted(shown)}" if shown else heads[read.name]]
    return RecalledTier(tier="files", text="\n\n".join(parts), left_out=left_out)


def _heading(read: FileRead) -> str:
    if read.problem:
        return f"### {read.name}: not shown, {read.problem}"
    return f"### {read.name} ({read.size:,} bytes)" if read.size else f"### {read.name} (empty)"


def _body(read: FileRead) -> tuple[str, int]:
    """What of a file is to be shown, and the bytes that are missing in it already."""
    if read.problem:
        return "", 0
    if read.name == "features.json" and not read.unread and (status := features_status(read.text)):
        return status, 0
    return read.text.rstrip("\n"), read.unread


def _cut(file: MemoryFile, text: str, tokens: int, unread: int) -> str:
    """What there is room for, quoted."""
    cut = newest_of if file.newest else first_of
    room = tokens
    shown = cut(text, room, where=file.name, unread=unread)
    while shown and (over := tokens_of(_quoted(shown)) - tokens) > 0:
        room -= over
        shown = cut(text, max(0, room), where=file.name, unread=unread)
    return shown


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _shared_out(needs: dict[str, int], files: Sequence[MemoryFile], room: int) -> dict[str, int]:
    """Tokens for each file: its share at the most, then what the others leave over, by importance."""
    rooms = {file.name: min(needs[file.name], room * file.share // 100) for file in files}
    for file in files:
        left = room - sum(rooms.values())
        rooms[file.name] += min(left, needs[file.name] - rooms[file.name])
    return rooms


def features_status(text: str) -> str:
    """Which features of a features.json are not done yet, and how many are; empty where it holds no features."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    features = found.get("features") if isinstance(found, dict) else found
    if not isinstance(features, list) or not features or not all(isinstance(each, dict) for each in features):
        return ""
    open_ones = [each for each in features if not _is_done(each)]
    lines = [f"{len(features) - len(open_ones):,} of {len(features):,} features done"]
    lines += [f"- [ ] {_name_of(each)}" for each in open_ones]
    return "\n".join(lines)


def _is_done(feature: dict[str, Any]) -> bool:
    if isinstance(feature.get("passes"), bool):
        return bool(feature["passes"])
    return str(feature.get("status", "")).casefold() in DONE


def _name_of(feature: dict[str, Any]) -> str:
    names = (feature.get(field) for field in NAMES)
    words = ": ".join(" ".join(str(name).split())[:200] for name in names if isinstance(name, str | int))
    return words.encode("utf-8", "replace").decode() or "(without a name)"  # JSON may escape half a character
