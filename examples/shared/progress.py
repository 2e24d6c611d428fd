"""The output of a demo while it runs: a line for each event, with the seconds since the start."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from holdfast.core.base.text import one_line

_STYLES = {"kill": "bold red", "worker": "cyan", "person": "bold yellow", "policy": "yellow", "server": "blue"}


class Progress:
    """Prints the progress of a demo, line by line.

    Args:
        console: The output; coloured on a terminal, otherwise plain text.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def report(self, who: str, what: str, *, note: str = "", style: str = "", whole: bool = False) -> None:
        """Print one line: the time, who acts, what happens, and a note in grey.

        Text that does not fit on the line is cut, unless `whole` is true.
        """
        line = Text.assemble((f"{self.elapsed:6.1f}  ", "dim"), (f"{who:<8}", _STYLES.get(who, "green")), "  ")
        room = self._console.width - line.cell_len - (len(note) + 2 if note else 0)
        line.append(what if whole else one_line(what, max(30, room)), style=style)
        line.append(f"  {note}" if note else "", style="dim")
        self._console.print(line, soft_wrap=True)

    def gap(self) -> None:
        """Print an empty line before a new part of the demo."""
        self._console.print()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Report what the demo waits for during the block, with an animation on a terminal."""
        self.report("…", what, style="dim")
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(Text(what, style="dim")):
            yield
