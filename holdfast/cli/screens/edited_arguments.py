"""Edits the arguments of a call as JSON: in an editor, or on the command line."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from holdfast.core.base.text import visible_json
from holdfast.errors import HoldfastError

_COMMENT = "#"
_INTRODUCTION = (
    "Edit the arguments, save and close. They are shown before they are sent.",
    "Lines like this one are left out; an empty file changes nothing.",
)


class EditorFailed(HoldfastError):
    """There is no editor, or it failed."""


def read_arguments(text: str) -> dict[str, Any]:
    """Read the arguments of a call from JSON.

    Raises:
        ValueError: The text is not a JSON object; the message says why.
    """
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(arguments, dict):
        raise ValueError('it has to be an object with all arguments, such as {"version": "1.2.1"}')
    return arguments


async def edit_arguments(arguments: Any) -> dict[str, Any] | None:
    """Let a person edit arguments in `$VISUAL` or `$EDITOR`, until they are valid JSON; None if nothing changed.

    The terminal has to be free. Only this user can read the temporary file.

    Raises:
        EditorFailed: There is no editor, or it exited with an error.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or shutil.which("vi")
    if not editor:
        raise EditorFailed("there is no editor: set $VISUAL or $EDITOR, or use `approve` with --edit")
    before = body = visible_json(json.dumps(arguments, indent=2, ensure_ascii=False))
    comments = _INTRODUCTION
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        path = Path(folder) / "arguments.json"
        path.touch(mode=0o600)
        while True:
            path.write_text("".join(f"{_COMMENT} {line}\n" for line in comments) + body + "\n", encoding="utf-8")
            await _run(editor, path)
            edited = _without_comments(path.read_text(encoding="utf-8", errors="replace"))
            if edited.strip() in ("", before.strip()):
                return None
            try:
                return read_arguments(edited)
            except ValueError as error:
                if comments is not _INTRODUCTION and edited.strip() == body.strip():
                    return None  # the editor was closed without another attempt
                body, comments = edited, (f"This is not valid: {error}", *_INTRODUCTION[1:])


async def _run(editor: str, path: Path) -> None:
    command = [*shlex.split(editor), str(path)]
    try:
        completed = await asyncio.to_thread(subprocess.run, command, check=False)
    except OSError as error:
        raise EditorFailed(f"the editor {editor!r} does not start: {error}; set $VISUAL or $EDITOR") from None
    if completed.returncode:
        raise EditorFailed(f"the editor {editor!r} exited with {completed.returncode}: nothing was changed")


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(_COMMENT):
        del lines[0]
    return "".join(lines)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no number {name}")
