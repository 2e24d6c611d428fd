"""Tools that read and write the files of a run's workspace, and nothing outside it.

1. A path is normalised before the policy judges it, and no link in it is followed, so the path that was judged is the
   one that is opened (`holdfast.workspace.beneath`).
2. Only regular files are opened: a pipe or a device cannot hang a call.
3. A file is replaced as a whole or not at all, and repeating a write or an edit has no further effect.
"""

import os
from typing import Annotated, BinaryIO

from pydantic import Field

from holdfast.core.base.paths import WorkspacePath
from holdfast.core.tools.decorator import Preview, Tool, ToolContext, tool
from holdfast.core.tools.not_done import REPEATABLE
from holdfast.workspace.beneath import WALKED, find_entries, open_workspace
from holdfast.workspace.file_previews import file_diff, preview_write, read_before
from holdfast.workspace.files import not_text, open_text_file, plain_errors, replace, require_file, write_lock
from holdfast.workspace.line_ends import LineEndings
from holdfast.workspace.sandbox import DEFAULT, Confinement
from holdfast.workspace.sandboxed_shell import Confine, command_tools
from holdfast.workspace.search import search_lines

READ_BYTES = 100_000
"""The most bytes of a file that one `read_file` returns."""
LINE_BYTES = 2_000
"""The most bytes of a line that `read_file` shows."""
SCAN_BYTES = 2 * 1024**3
"""How far into a file `read_file` searches for a line."""
EDIT_BYTES = 10_000_000
"""Size of the largest file that `edit_file` accepts."""
LISTED = 1_000
"""The most entries that one `list_files` returns."""


class EditRefused(Exception):
    """The edit cannot be made as asked; nothing was changed."""


def workspace_tools(*, confine: Confine = "auto", confinement: Confinement = DEFAULT) -> list[Tool]:
    """Return the file and command tools for a catalog: `Catalog(agents=[…], tools=workspace_tools())`.

    Args:
        confine: Which tools run commands; with `require`, only `run_confined`.
        confinement: The limits of `run_confined`.

    Raises:
        CatalogError: `confine` is `require`, and this machine cannot confine commands.
    """
    files = [list_files, read_file, search_files, write_file, edit_file]
    return [*files, *command_tools(confine, confinement)]


_SIGNS = {"link": "@", "folder": "/"}

Line = Annotated[int, Field(ge=1)]
"""A line's number, or a number of lines."""


@tool(effect="read", files=("{path}",))
def list_files(path: WorkspacePath = ".", pattern: str = "**/*", *, context: ToolContext) -> str:
    """List files and folders in the workspace. Folders end in "/", links in "@"; the contents of .git are left out.

    Args:
        context: Filled in by Holdfast.
        path: The folder to list, with everything below it.
        pattern: A glob relative to that folder: "*" and "?" stay within a name, "**" is any number of
            folders. Use "./*" for the folder alone, "*.py" or "src/**/*.py" for certain names.
    """
    with plain_errors(path), open_workspace(context.workspace) as root, root.folder(path):
        entries, left_out = find_entries(root, path, pattern, most=LISTED)
    if not entries and not left_out:
        return f"[nothing in {path} matches {pattern}]"
    lines = sorted(entry.path + _SIGNS.get(entry.kind, "") for entry in entries)
    if left_out:
        lines.append("[there may be more; narrow the path or the pattern to see it]")
    return "\n".join(lines)


@tool(effect="read", files=("{path}",))
def read_file(path: WorkspacePath, offset: Line = 1, *, limit: Line = 1_000, context: ToolContext) -> str:
    """Read a text file, or part of a long one. A note in brackets at the end says what was left out.

    Args:
        context: Filled in by Holdfast.
        path: The file.
        offset: The first line to read, counted from 1.
        limit: The number of lines to read.
    """
    with open_text_file(context.workspace, path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return f"[{path} is empty]"
        if not _skip_lines(file, offset - 1) or file.tell() == size:
            return f"[{path} ends before line {offset}; it has {size:,} bytes]"
        lines: list[str] = []
        read = 0
        while len(lines) < limit and read < READ_BYTES and (line := file.readline(LINE_BYTES)):
            read += len(line)
            rest = _rest_of_line(file) if len(line) == LINE_BYTES and not line.endswith(b"\n") else 0
            try:
                # A clipped line may end within a character: drop those bytes, but no other invalid ones.
                cut = next((n for n in range(1, 4) if rest and line[-n] >= 0xC0), 0)
                lines.append(line[: len(line) - cut].decode("utf-8"))
            except UnicodeDecodeError:
                raise not_text(file, path) from None
            if rest:
                lines[-1] += f" […{rest + cut:,} more bytes in this line]\n"
        if file.tell() >= size:
            return "".join(lines)
        end = offset + len(lines) - 1
        note = f"[lines {offset} to {end} of a file of {size:,} bytes; read on with offset={end + 1}]"
        return "".join(lines) + note


def _skip_lines(file: BinaryIO, lines: int) -> bool:
    """Skip `lines` lines; return False if the file has fewer."""
    while lines:
        chunk = file.read(1_000_000)
        if not chunk:
            return False
        if file.tell() > SCAN_BYTES:
            raise ValueError(f"that line is not in the first {SCAN_BYTES:,} bytes; try a command such as `sed`")
        breaks = chunk.count(b"\n")
        if breaks < lines:
            lines -= breaks
            continue
        end = -1
        for _ in range(lines):
            end = chunk.index(b"\n", end + 1)
        file.seek(end + 1 - len(chunk), os.SEEK_CUR)
        return True
    return True


def _rest_of_line(file: BinaryIO) -> int:
    """Skip the rest of the line; return its length in bytes."""
    start = file.tell()
    _skip_lines(file, 1)
    return file.tell() - start


@tool(effect="read", files=("{path}",))
def search_files(pattern: str, path: WorkspacePath = ".", *, glob: str = "**/*", context: ToolContext) -> str:
    """Search text files in the workspace, line by line. Returns "path:line: text" for each line that matches.

    Binary files, links and the contents of .git are left out.

    Args:
        context: Filled in by Holdfast.
        pattern: A regular expression (Python's syntax; begin with "(?i)" to ignore case).
        path: The folder to search, with everything below it, or one file.
        glob: The files to search, relative to that folder: "*.py", "src/**/*.md".
    """
    with plain_errors(path), open_workspace(context.workspace) as root:
        try:
            with root.folder(path):
                entries, left_out = find_entries(root, path, glob, most=WALKED)
                files = [entry.path for entry in entries if entry.kind == "file"]
        except NotADirectoryError:
            with root.parent(path) as (folder, name):
                require_file(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
            files, left_out = [root.relative(path)], False
        hits = search_lines(pattern, root.fd, files=sorted(files))
    hits = hits or f"[no line matches {pattern!r} in {len(files):,} files]"
    return hits + (f"\n[only the nearest {WALKED:,} entries were searched; narrow the path]" if left_out else "")


@tool(effect="idempotent", not_done_on=REPEATABLE, files=("{path}",), preview=preview_write)
def write_file(path: WorkspacePath, content: str, *, context: ToolContext) -> str:
    """Create or replace a text file; missing folders are created.

    Args:
        context: Filled in by Holdfast.
        path: The file.
        content: The complete new text.
    """
    encoded = content.encode("utf-8")
    with write_lock(context.workspace):
        replace(context.workspace, path, content=encoded, key=context.key)
    return f"Wrote {len(encoded):,} bytes to {path}."


def preview_edit(
    path: WorkspacePath, old: str, *, new: str, replace_all: bool = False, context: ToolContext
) -> Preview:
    """Show the change that `edit_file` would make.

    Raises:
        EditRefused: The edit cannot be made.
    """
    before, base = read_before(context, path)
    text = LineEndings.of(before or "") if "\r" not in old + new else LineEndings(before or "", before or "", [])
    if before is None or not old or old == new or shows_edit(text.text, old, new=new):
        raise EditRefused("the edit cannot be made as asked")
    apply_edit(text.text, old, new=new, replace_all=replace_all, path=path)
    return Preview(file_diff(path, before, text.replaced(old, new)), base=base)


@tool(effect="idempotent", not_done_on=REPEATABLE, files=("{path}",), preview=preview_edit)
def edit_file(path: WorkspacePath, old: str, *, new: str, replace_all: bool = False, context: ToolContext) -> str:
    """Replace text in a file. `old` must occur in it exactly once, unless replace_all is true.

    An edit is refused if the file already shows it, that is, if `old` occurs only within `new`.

    Args:
        context: Filled in by Holdfast.
        path: The file.
        old: The text to replace, exactly as it is in the file, long enough to be unique.
        new: The replacement.
        replace_all: Replace every occurrence.
    """
    if not old or old == new:
        raise EditRefused(
            "`old` must be text of the file, and `new` must differ from it; write_file replaces a whole file"
        )
    with write_lock(context.workspace):
        with open_text_file(context.workspace, path) as file:
            encoded = file.read(EDIT_BYTES + 1)
            if len(encoded) > EDIT_BYTES:
                raise EditRefused(f"{path} has more than {EDIT_BYTES:,} bytes; try a command such as `sed`")
            try:
                before = encoded.decode("utf-8")
            except UnicodeDecodeError:
                raise not_text(file, path) from None
        # An edit that writes carriage returns itself is made as it is written.
        text = LineEndings.of(before) if "\r" not in old + new else LineEndings(before, before, [])
        if shows_edit(text.text, old, new=new):
            # The file stays unchanged either way; only for a repeated attempt is that a success.
            if context.attempt > 1:
                return f"{path} already shows this edit: an earlier, interrupted attempt seems to have made it."
            raise EditRefused(_nothing_left(text.text, path, old=old, new=new))
        apply_edit(text.text, old, new=new, replace_all=replace_all, path=path)  # raises if the edit cannot be made
        after = text.replaced(old, new)
        replace(context.workspace, path, content=after.encode("utf-8"), key=context.key)
    count = text.text.count(old)
    return f"Edited {path}: replaced {count:,} occurrence{'s' if count > 1 else ''}."


def shows_edit(text: str, old: str, *, new: str) -> bool:
    """Whether `text` already shows the edit: it contains `new`, and `old` occurs only within `new`."""
    pieces = text.split(new) if new else [text]
    return (len(pieces) > 1 or not new) and not any(old in piece for piece in pieces)


def apply_edit(text: str, old: str, *, new: str, replace_all: bool, path: str) -> str:
    """Return the edited text. `shows_edit` recognises it, so that a second attempt has no further effect.

    Raises:
        EditRefused: `old` does not occur, occurs more than once, or would still occur after the edit.
    """
    count = text.count(old)
    if not count:
        raise EditRefused(f"`old` does not occur in {path}; read the file and copy the text exactly")
    if count > 1 and not replace_all:
        raise EditRefused(f"`old` occurs {count:,} times in {path}; include more context, or set replace_all")
    after = text.replace(old, new)
    if not shows_edit(after, old, new=new):
        raise EditRefused(f"{path} would still contain `old` after the edit; include more context in `old` and `new`")
    return after


def _nothing_left(text: str, path: str, *, old: str, new: str) -> str:
    if old in text:
        return f"{path} has `old` only within `new`: the edit seems to be made; to repeat it, include more context"
    hint = "; `new` does, so the edit may be made already" if new else ""
    return f"`old` does not occur in {path}{hint}; read the file and copy the text exactly"
