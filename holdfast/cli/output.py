"""Where the CLI writes: results on stdout, everything else on stderr; JSON for programs, text for people.

Colours only on a terminal, and never with NO_COLOR; a pipe gets plain text, one line each, however long.
"""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.core.base.text import INVISIBLE, visible, visible_json


class _Console(Console):
    def print(self, *objects: Any, **how: Any) -> None:
        """Print, with every character written out that could act on the terminal or reorder a line.

        Screens escape what they show; this is the last line, for a field that a screen forgot.
        """
        super().print(*(harmless(each) if isinstance(each, Text) else each for each in objects), **how)

    def on_broken_pipe(self) -> None:
        """Raise, so that `main` decides on the exit code; rich would end the process with 1."""
        raise BrokenPipeError


def harmless(screen: Text) -> Text:
    """Return the text with its styles, and its invisible characters written out."""
    found = [match.span() for match in INVISIBLE.finditer(screen.plain)]
    if not found:
        return screen
    pieces = screen.divide(at for span in found for at in span)
    return Text("", end=screen.end).join(
        Text(visible(piece.plain)) if INVISIBLE.fullmatch(piece.plain) else piece for piece in pieces
    )


class Output:
    """Both streams.

    Args:
        as_json: Results as JSON, one object a line.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        self.err = _Console(soft_wrap=True, highlight=False, markup=False, emoji=False, stderr=True)

    def result(self, value: Any, screen: Text | None = None, *, line: bytes | None = None) -> None:
        """Write a result: `value` as JSON, or its `screen`; flush it, for a reader may be following.

        `line` is the JSON in the spelling that its digest covers, where it has one.
        """
        if self.as_json:
            # Some terminals and pipes are not UTF-8; every parser reads escapes.
            utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            spelled = line.decode() if line is not None and utf8 else json.dumps(value, ensure_ascii=not utf8)
            if self.out.is_terminal:
                spelled = visible_json(spelled)  # the same value; a program gets the very bytes
            sys.stdout.write(spelled + "\n")
        elif screen is not None and screen.plain:
            self.out.print(screen)
        sys.stdout.flush()

    def note(self, words: str | Text) -> None:
        """Write something beside the result."""
        self.err.print(words if isinstance(words, Text) else Text(words))

    def progress(self, line: Text) -> None:
        """Write a line of progress, cut to the terminal's width."""
        if self.err.is_terminal:
            line.truncate(self.err.width, overflow="ellipsis")
        self.err.print(line)
