"""The files tier of a prompt: the memory files in the workspace, each within its share of the budget.

Nothing here reads a file: the caller passes the content, or the reason that it could not be read, as `FileRead`. File
content is quoted with `>`, so that it cannot pose as standing memory or as another file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.core.llm.tokens import BYTES_PER_TOKEN, first_of, newest_of, size_of, tokens_of
from holdfast.core.memory.features import DONE, NAMES
from holdfast.core.memory.progress_steps import is_about_goal, shortened
from holdfast.core.memory.recalled import RecalledTier


class MemoryFile(NamedTuple):
    """A file of the workspace that the prompt shows."""

    name: str
    share: int
    """Percentage of the budget; unused shares go to the other files, in order."""
    newest: bool
    """Whether the file grows at its end, so that the prompt shows its end."""
    summarised: bool = False
    """Whether the prompt may have a summary, for which more of the file is read."""


USUAL = "progress.txt"
"""The usual path of the progress file."""

SUMMARISED_BYTES = 1_000_000
"""Maximum size of a features.json, or of a list of completed steps, that is summarised; the prompt shows the beginning
of a larger one verbatim."""

TITLE = "## Workspace files at the start of this run; lines that begin with > quote their content"


@dataclass(frozen=True)
class FileRead:
    """The part of a file that was read."""

    name: str
    size: int = 0
    """Size of the whole file in bytes."""
    text: str = ""
    """Its beginning, or its end if `MemoryFile.newest`: at least as much as the budget can hold."""
    unread: int = 0
    """Number of bytes that `text` omits."""
    problem: str = ""
    """The reason that the file could not be read; empty if it was."""


def memory_files(progress: str = USUAL) -> tuple[MemoryFile, ...]:
    """Return the files in order of importance, which is also their order in the prompt.

    Args:
        progress: Path of the progress file.
    """
    return (
        MemoryFile("TASKS.md", 40, newest=False),
        MemoryFile("features.json", 15, newest=False, summarised=True),
        MemoryFile(progress, 20, newest=False, summarised=True),  # newest entries first
        MemoryFile("ERRORS.md", 15, newest=True),
        MemoryFile("LEARNINGS.md", 10, newest=True),
    )


def read_ahead(file: MemoryFile, tokens: int) -> int:
    """Return the number of bytes of a file to read for a budget of `tokens`."""
    least = tokens * BYTES_PER_TOKEN + 1
    return max(SUMMARISED_BYTES, least) if file.summarised else least


def files_tier(files_read: Sequence[FileRead], tokens: int, *, progress: str = USUAL) -> RecalledTier | None:
    """Assemble the part of the prompt that shows a workspace's files; None if there is nothing to show.

    Args:
        files_read: The existing files.
        tokens: The budget.
        progress: Path of the progress file.
    """
    if not files_read or not tokens:
        return None
    reads = {read.name: read for read in files_read}
    files = [(file, reads[file.name]) for file in memory_files(progress) if file.name in reads]
    heads = {read.name: _heading(read) for _, read in files}
    bodies = {read.name: _body(read) for _, read in files}
    room = tokens - tokens_of(TITLE) - sum(tokens_of(head) + 1 for head in heads.values())
    needs = {name: tokens_of(_quoted(text)) + (tokens if unread else 0) for name, (text, unread) in bodies.items()}
    rooms = _divide(needs, [file for file, _ in files], max(0, room))
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
    """Return the content of a file to show, and the number of bytes that it already lacks."""
    if read.problem:
        return "", 0
    if read.name == "features.json" and not read.unread and (status := features_status(read.text)):
        return status, 0
    if is_about_goal(read.text):
        return shortened(read.text).rstrip("\n"), read.unread
    return read.text.rstrip("\n"), read.unread


def _cut(file: MemoryFile, text: str, tokens: int, unread: int) -> str:
    """Cut the text so that its quotation fits the budget."""
    cut = newest_of if file.newest else first_of
    room = tokens
    shown = cut(text, room, source=file.name, unread=unread)
    while shown and (over := tokens_of(_quoted(shown)) - tokens) > 0:
        room -= over
        shown = cut(text, max(0, room), source=file.name, unread=unread)
    return shown


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _divide(needs: dict[str, int], files: Sequence[MemoryFile], room: int) -> dict[str, int]:
    """Divide the budget: each file gets at most its share, then unused tokens go to files in order of importance."""
    rooms = {file.name: min(needs[file.name], room * file.share // 100) for file in files}
    for file in files:
        left = room - sum(rooms.values())
        rooms[file.name] += min(left, needs[file.name] - rooms[file.name])
    return rooms


def features_status(text: str) -> str:
    """Summarise a features.json: the number of features done, and a list of the others; empty if it has no features."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    features = parsed.get("features") if isinstance(parsed, dict) else parsed
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
    return words.encode("utf-8", "replace").decode() or "(without a name)"  # JSON may escape a lone surrogate
