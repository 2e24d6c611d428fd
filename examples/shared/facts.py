"""The table of facts at the end of a demo, counted in the real systems and compared with the expected values."""

from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Kill:
    """A kill of the worker."""

    what: str
    """The run's activity at the time."""
    at: datetime
    seen: str
    """The state on the server and in files while no worker was alive."""
    wanted: str
    """The expected state."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    fact: str
    found: object
    expected: object = None
    """None if any value is right."""

    @property
    def right(self) -> bool:
        """Whether the fact is as expected."""
        return self.expected is None or self.found == self.expected


def show(console: Console, facts: list[Row]) -> bool:
    """Print the table; return whether every fact is right."""
    table = Table(title="What happened", title_justify="left", title_style="bold", show_header=False)
    for _ in range(3):
        table.add_column()
    for row in facts:
        mark = Text("·", "dim") if row.expected is None else Text("✓", "green") if row.right else Text("✗", "bold red")
        found = str(row.found) if row.right else f"{row.found} (expected: {row.expected})"
        table.add_row(mark, row.fact, Text(found, "" if row.right else "bold red"))
    console.print(table)
    return all(row.right for row in facts)
