"""The CLI's output: results on stdout, everything else on stderr; JSON for programs, text for people.

Only terminals get colours, unless NO_COLOR is set; a pipe gets plain text, one unwrapped line each.
"""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.core.base.text import INVISIBLE, visible, visible_json


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with characters that could act on the terminal or reorder a line escaped.

        Screens escape their text; this is the last line of defence, for a field that a screen does not escape.
        """
        super().print(*(harmless(each) if isinstance(each, Text) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise, so that `main` decides on the exit code; rich would end the process with 1."""
        raise BrokenPipeError


def harmless(screen: Text) -> Text:
    """Return the text with its styles and with its invisible characters escaped."""
    spans = [match.span() for match in INVISIBLE.finditer(screen.plain)]
    if not spans:
        return screen
    pieces = screen.divide(at for span in spans for at in span)
    return Text("", end=screen.end).join(
        Text(visible(piece.plain)) if INVISIBLE.fullmatch(piece.plain) else piece for piece in pieces
    )


class Output:
    """The CLI's two output streams.

    Args:
        as_json: Write results as JSON, one object per line.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        self.err = _Console(soft_wrap=True, highlight=False, markup=False, emoji=False, stderr=True)

    def result(self, value: Any, screen: Text | None = None, *, line: bytes | None = None) -> None:
        """Write a result and flush it, because a reader may be following the output.

        Args:
            value: The result, for JSON output.
            screen: The result for people.
            line: The exact JSON bytes that the result's digest covers, if it has a digest.
        """
        if self.as_json:
            # Some terminals and pipes are not UTF-8; every parser reads escapes.
            utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            text = line.decode() if line is not None and utf8 else json.dumps(value, ensure_ascii=not utf8)
            if self.out.is_terminal:
                text = visible_json(text)  # the same value; a program gets the exact bytes
            sys.stdout.write(text + "\n")
        elif screen is not None and screen.plain:
            self.out.print(screen)
        sys.stdout.flush()

    def note(self, message: str | Text) -> None:
        """Write a message beside the result, on stderr."""
        self.err.print(message if isinstance(message, Text) else Text(message))

    def progress(self, line: Text) -> None:
        """Write a line of progress, cut to the terminal's width."""
        if self.err.is_terminal:
            line.truncate(self.err.width, overflow="ellipsis")
        self.err.print(line)
