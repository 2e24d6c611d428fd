"""A text that may be longer than its place on the screen: which of its rows are shown, and which have been.

People decide on what they have seen. So a long line is wrapped and never cut, and each row that was on the screen is
remembered until the text or the width changes.
"""

from collections.abc import Callable, Hashable, Iterable

from rich.cells import cell_len
from rich.text import Text

from holdfast.base.text import wrapped


class Scrolling:
    """One text on the screen, row by row."""

    def __init__(self) -> None:
        self.rows: list[Text] = []
        self.room = 1
        """How many rows are shown at a time."""
        self._first = 0
        self._seen: set[int] = set()
        self._key: tuple[Hashable, int] | None = None
        self._laid_out: Hashable = None

    def lay_out(self, lines: Callable[[], Iterable[Text]], *, width: int, key: Hashable, version: Hashable) -> None:
        """Take the text.

        Args:
            lines: Returns its lines.
            width: Columns of the screen.
            key: What the text is about. A text with another key, or at another width, has not been seen.
            version: Changes with the lines.
        """
        if (key, width, version) != self._laid_out:
            self.rows = [row for line in lines() for row in rows_of(line, width)]
            self._laid_out = (key, width, version)
        if (key, width) != self._key:
            self._key, self._first, self._seen = (key, width), 0, set()

    def show(self, room: int) -> list[Text]:
        """Return the rows that are on the screen now, at most `room`, and note that they were."""
        self.room = max(1, room)
        self._first = max(0, min(self._first, len(self.rows) - self.room))
        last = min(len(self.rows), self._first + self.room)
        self._seen.update(range(self._first, last))
        return self.rows[self._first : last]

    def key(self, key: str) -> bool:
        """Scroll, if the key does that."""
        page = max(1, self.room - 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "home": -len(self.rows)}
        steps["end"] = len(self.rows)
        if key not in steps:
            return False
        self._first = max(0, min(self._first + steps[key], len(self.rows) - self.room))
        return True

    @property
    def unseen(self) -> list[int]:
        """The numbers of the rows that were not on the screen yet, from 1."""
        return [number + 1 for number in range(len(self.rows)) if number not in self._seen]

    def seen(self, key: Hashable) -> bool:
        """Whether every row of the text about this was on the screen, as wide as it is now."""
        return self._key is not None and self._key[0] == key and not self.unseen

    @property
    def mark(self) -> str:
        """How much is above and below; empty where everything is on the screen."""
        above, below = self._first, max(0, len(self.rows) - self._first - self.room)
        if not above and not below:
            return ""
        parts = [f"▲ {above:,} rows above"] if above else []
        parts += [f"▼ {below:,} rows below"] if below else ["the end"]
        return ", ".join(parts)

    @property
    def unseen_words(self) -> str:
        """What was not on the screen yet: `rows 12 to 40 of 60`."""
        missing = self.unseen
        if not missing:
            return ""
        last = next((a for a, b in zip(missing, [*missing[1:], 0], strict=True) if b != a + 1), missing[-1])
        more = ", and others," if last != missing[-1] else ""
        return f"rows {missing[0]:,} to {last:,}{more} of {len(self.rows):,}"


def rows_of(line: Text, width: int) -> list[Text]:
    """Return a line as rows of at most `width` columns, all of it, with a mark on each row that continues it."""
    if cell_len(line.plain) <= width and "\t" not in line.plain:
        return [line]
    return [Text(row, line.style) for row in wrapped(line.plain, width, columns=cell_len)]
