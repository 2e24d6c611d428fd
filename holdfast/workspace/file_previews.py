"""Previews of the tools that change files and commit them: what people see before they approve such a call.

A preview's base names the bytes of the file, or the commit and its changes: if they are others when the approved call
is about to run, it does not run.
"""

import difflib
import hashlib
from collections.abc import Iterator

from holdfast.core.base.paths import WorkspacePath
from holdfast.core.tools.decorator import Preview, ToolContext
from holdfast.workspace.files import not_text, open_text_file
from holdfast.workspace.git.repository import Repository

PREVIEWED_BYTES = 1_000_000
"""Size of the largest file whose change is shown line by line."""

DIFFED_LINES = 2_000
"""Lines of both versions up to which the smallest diff is sought, which may take quadratic time. For longer ones, the
lines between the first change and the last are shown as replaced."""

CONTEXT_LINES = 3
"""Unchanged lines around a change."""


def read_before(context: ToolContext, path: str) -> tuple[str | None, str]:
    """Return the text of a file before a change, and its base; None for a file that does not exist.

    Raises:
        NotAFile, NotText, OutsideWorkspace, OSError: The path is not a text file of the workspace.
        ValueError: The file is too large to be shown.
    """
    try:
        with open_text_file(context.workspace, path) as file:
            encoded = file.read(PREVIEWED_BYTES + 1)
            if len(encoded) > PREVIEWED_BYTES:
                raise ValueError(f"{path} has more than {PREVIEWED_BYTES:,} bytes")
            try:
                return encoded.decode("utf-8"), hashlib.sha256(encoded).hexdigest()
            except UnicodeDecodeError:
                raise not_text(file, path) from None
    except FileNotFoundError:
        return None, "absent"


def preview_write(path: WorkspacePath, content: str, *, context: ToolContext) -> Preview:
    """Show the change that `write_file` would make."""
    before, base = read_before(context, path)
    return Preview(file_diff(path, before, content), base=base)


def file_diff(path: str, before: str | None, after: str) -> str:
    """Return the change of a file as a unified diff.

    Args:
        path: The file.
        before: Its text; None if it does not exist.
        after: Its new text.
    """
    if before == after:
        return f"[{path} has exactly this text already]"
    if len(after) > PREVIEWED_BYTES:
        return f"[{path} gets {len(after):,} characters, too many to show line by line]"
    old, new = _lines(before or ""), _lines(after)
    names = ("/dev/null" if before is None else f"a/{path}", f"b/{path}")
    if len(old) + len(new) <= DIFFED_LINES:
        rows: Iterator[str] = difflib.unified_diff(old, new, *names, n=CONTEXT_LINES, lineterm="")
    else:
        rows = _one_hunk(old, new, names)
    return "\n".join(rows)


def _lines(text: str) -> list[str]:
    """Split a text into lines as a diff shows them: carriage returns are visible, and so is a missing line feed."""
    *whole, last = text.split("\n")
    lines = [*whole, f"{last}\n\\ No newline at end of file"] if last else whole
    return [line.replace("\r", "␍") for line in lines]


def _one_hunk(old: list[str], new: list[str], names: tuple[str, str]) -> Iterator[str]:
    """Yield a diff that replaces all lines between the first change and the last, in linear time."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    start, below = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    old_end, new_end = len(old) - tail, len(new) - tail
    yield from (f"--- {names[0]}", f"+++ {names[1]}")
    yield f"@@ -{start + 1},{old_end + below - start} +{start + 1},{new_end + below - start} @@"
    yield from (f" {line}" for line in old[start:head])
    yield from (f"-{line}" for line in old[head:old_end])
    yield from (f"+{line}" for line in new[head:new_end])
    yield from (f" {line}" for line in old[old_end : old_end + below])


def preview_commit(context: ToolContext) -> Preview:
    """Show the files and the changes that a commit would have."""
    pending = Repository(context.workspace).pending()
    if pending is None:
        return Preview("There is no repository yet: it is created, and the commit has every file of the workspace.")
    if not pending.staged.paths:
        return Preview("There is nothing to commit.", base=pending.base)
    count = len(pending.staged.paths)
    files = "1 file changes" if count == 1 else f"{count:,} files change"
    lines = [f"{files} (lines added, lines removed, file):", *pending.summary.splitlines(), ""]
    lines += [f"Left out: {name}" for name in (*pending.staged.left_out, *pending.staged.filtered)]
    return Preview("\n".join([*lines, pending.diff or "[too many lines to show]"]), base=pending.base)
