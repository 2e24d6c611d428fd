"""What a demo ends with: a table of facts, counted in the real things; and are they right?"""

from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Kill:
    """A worker that was killed."""

    what: str
    """What the run was doing."""
    at: datetime
    seen: str
    """What the server, and the files, had while no worker was alive."""
    wanted: str
    """What they should have had."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    fact: str
    found: object
    expected: object = None
    """None where any value will do."""

    @property
    def right(self) -> bool:
        """Whether it is as it should be."""
        return self.expected is None or self.found == self.expected


def show(console: Console, facts: list[Row]) -> bool:
    """Print the table; returns whether every fact is right."""
    table = Table(title="What happened", title_justify="left", title_style="bold", show_header=False)
    for _ in range(3):
        table.add_column()
    for row in facts:
        mark = Text("·", "dim") if row.expected is None else Text("✓", "green") if row.right else Text("✗", "bold red")
        found = str(row.found) if row.right else f"{row.found} (expected: {row.expected})"
        table.add_row(mark, row.fact, Text(found, "" if row.right else "bold red"))
    console.print(table)
    return all(row.right for row in facts)
