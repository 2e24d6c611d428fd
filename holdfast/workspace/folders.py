"""Names of the folders in which threads work: one folder for each thread id, on every file system.

1. A simple id (lower-case ASCII letters, digits, `-` and `.`) is its own name, because people look for it.
2. Any other id gets a readable part and a digest, joined by `+`, which no simple id contains. So `acme/1`, `acme_1` and
   `ACME-1` have folders of their own, also where file names ignore case, and no id is too long.
"""

import re
from pathlib import Path

from holdfast.core.base.canonical import digest

_SIMPLE = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")
_READABLE_CHARS = 60


def folder_name(thread: str) -> str:
    """Return the name of a thread's folder."""
    return thread if _SIMPLE.fullmatch(thread) else digested_name(thread)


def digested_name(thread: str) -> str:
    """Return a name with a digest, for places that simple names could collide with, such as git branches."""
    readable = re.sub(r"[^a-z0-9-]+", "-", thread.lower())[:_READABLE_CHARS].strip("-") or "thread"
    return f"{readable}+{digest(['thread-folder/1', thread])[:24]}"


def earlier_folder(workspaces: Path, thread: str) -> Path | None:
    """Return the folder that releases before 0.2.0 would have given to a thread, if there is one with another name.

    Several ids could have it, so it belongs to the thread only if the thread's record says so.
    """
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in thread).lstrip(".") or "_"
    if name == folder_name(thread):
        return None
    try:
        return folder.resolve() if (folder := workspaces / name).is_dir() else None
    except OSError:
        return None  # the name is too long for this file system, so the folder was never made
