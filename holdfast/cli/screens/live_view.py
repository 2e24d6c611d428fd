"""What the live view shows below the events: the status, the calls under way, and the request to decide.

1. Everything fits the terminal, however small. What is longer scrolls, and says how much is above and below.
2. A decision that lets a call run is offered once every row of the request has been on the screen.
"""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from holdfast.cli.screens.costs import budget_words, more_words
from holdfast.cli.screens.keys import ASKS, Keys, Name, choices_for, decision_of, hints_for, name_of
from holdfast.cli.screens.request_screens import request_head, request_terms
from holdfast.cli.screens.thread_screens import STATUS_STYLES
from holdfast.cli.screens.thread_words import limits_words, pause_words, retry_words, tokens_words
from holdfast.cli.text import brief, visible
from holdfast.client.reading.recent import running_calls
from holdfast.client.reading.runs import Retrying
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI
from holdfast.core.authority.statements import parsed
from holdfast.core.base.readable_json import readable_json
from holdfast.core.base.text import wrapped
from holdfast.core.log.events import EVENTS
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.web_ui import HARMLESS
from holdfast.errors import EventOutOfPlace

FEWEST_ROWS = 2
"""Rows that a request has at the least, on the smallest terminal."""

_SCROLLING = {" ": "page_down", "b": "page_up"}
"""Keys that scroll where they are not text."""

_CHANGES = {"-": "red", "+": "green"}


class View:
    """The state of the live view: a fold over the events so far.

    Args:
        thread: The thread id.
        console: The terminal.
    """

    def __init__(self, thread: str, console: Console) -> None:
        self.state = RunState(thread=thread)
        self.keys = Keys(seen=self.seen)
        self.scrolling = Scrolling()
        """The request on the screen."""
        self.note = ""
        self.pressed = ""
        """The last key. Why it did nothing is shown until the next one."""
        self.retrying: Sequence[Retrying] = ()
        self.below: Sequence[Text] = ()
        """The sub-agents, each on a line."""
        self._asked_below: Sequence[JSON] = ()
        """The open requests of sub-agents."""
        self._console = console
        self._recent: list[JSON] = []
        self._spinner = Spinner("dots")

    def add(self, event: JSON) -> None:
        """Add the next event."""
        try:
            self.state = evolve(self.state, EVENTS.validate_python([event])[0])
        except ValidationError:
            self.note = "a newer release recorded this run; this view may not show all of it"
        except EventOutOfPlace:
            self.note = "earlier events of this thread are missing; this view may not show all of it"
        if event["type"] == "llm_replied":
            self._recent.clear()  # calls of earlier steps are all finished
        self._recent.append(event)
        self._offer()
        self.keys.paused = self.state.pause is not None

    def look_below(self, rows: Sequence[Text], requests: Sequence[JSON]) -> None:
        """Take how the sub-agents are, and their open requests: these come after the run's own."""
        self.below, self._asked_below = rows, requests
        self._offer()

    def decided(self, request: JSON) -> None:
        """Leave out a request that was decided, until the next look at the sub-agents."""
        self._asked_below = [each for each in self._asked_below if name_of(each) != name_of(request)]
        self._offer()

    def _offer(self) -> None:
        """Offer the open requests of the run and of its sub-agents, in one list."""
        own = [
            {**request.view(), "thread": self.state.thread, "arguments": parsed(request.arguments)}
            for request in self.state.authority.requests
        ]
        blocked = self.state.blocked is not None and self.state.blocked.cause != BUDGET_SPENT  # `retry` does not help
        self.keys.update([*own, *self._asked_below], blocked=blocked)

    def seen(self, request: JSON) -> bool:
        """Whether all of a request, as it would run, has been on the screen."""
        return self.scrolling.seen(self._about(request))

    def _about(self, request: JSON) -> tuple[Name, str, str]:
        return name_of(request), request["digest"], str(self.keys.edited)

    def scroll(self, key: str) -> bool:
        """Scroll the request on the screen, if the key does that."""
        if self.keys.request is None:
            return False
        return self.scrolling.key(key if self.keys.typing else _SCROLLING.get(key, key))

    def explain(self, key: str) -> str:
        """Return why a key does nothing that would let a call run; empty where it does what it says."""
        request = self.keys.request
        if request is None or self.keys.typing or self.seen(request):
            return ""
        word = choices_for(request).get(key, "deny")
        if decision_of(word) in HARMLESS:
            return ""
        return f"read all of it first: {self.scrolling.unseen_words} were not on the screen yet; [space] pages on"

    def __rich__(self) -> RenderableType:
        """The part below the events."""
        width, height = self._console.width, self._console.height - 1  # the cursor stands below
        request = self.keys.request
        if request is None:
            bottom = self._rows(self._bottom(), most=max(1, height - FEWEST_ROWS))
            top = self._rows([*self._top(), *self._waiting()], most=max(1, height - len(bottom) - 1))
            return Group(*top, *self._spinning(), *bottom)
        terms = request_terms(request)
        self.scrolling.lay_out(
            lambda: self._request(request, terms),
            width=width,
            key=self._about(request),
            version=(terms, self.keys.place),
        )
        before = self.seen(request)
        parts = self._around(height)
        return parts if before == self.seen(request) else self._around(height)  # now there are more keys

    def _around(self, height: int) -> Group:
        """The request, between the status and the keys: as many of its rows as there is room for."""
        bottom = self._rows(self._bottom(), most=max(1, height - FEWEST_ROWS - 2))
        left = height - len(bottom) - 1  # one row says how much is above and below
        top = self._cut([*self._top()], most=max(1, left - max(FEWEST_ROWS, len(self.scrolling.rows))))
        shown = self.scrolling.show(left - len(top))
        mark = self.scrolling.mark
        return Group(*top, *shown, *self._cut([Text(f"── {mark} ──", "bold yellow")] if mark else [], most=1), *bottom)

    def _top(self) -> Iterator[Text]:
        """Status, calls under way, and why the run is blocked: each may be cut to one row."""
        state = self.state
        agent = brief(state.spec.name) if state.spec else "loading…"
        yield Text.assemble(
            (state.status.replace("_", " "), STATUS_STYLES.get(state.status, "")),
            f"  agent {agent}, step {state.steps.count}  ",
            (tokens_words(state.usage.model_dump()), "dim"),
        )
        if words := budget_words(state.account.view()):
            yield Text(f"Budget: {words}".replace("\n", " · "), "dim")
        if self.keys.request is None:
            yield Text("─" * min(self._console.width, 80), "dim")
        for call in running_calls(self._recent):
            yield Text(f"  {visible(call)}", "cyan")
        yield from self.below
        now = datetime.now(UTC)
        for each in self.retrying:
            yield Text(f"  {'paused' if each.paused else 'retrying'} {retry_words(each, now=now)}", "yellow")
        if state.pause:
            why = f": {state.pause.reason}" if state.pause.reason else ""
            words = f"Paused by {state.pause.by}{pause_words(state.pause.view())}{why}"
            yield Text(brief(words, 400), "bold blue")
        if state.dormancy.waits:
            yield Text(brief(f"Dormant, and waits for {state.dormancy.words}", 400), "bold blue")
        if state.blocked:
            yield Text(f"Blocked: {brief(f'{state.blocked.cause}: {state.blocked.message}', 400)}", "bold red")
            if state.blocked.cause == BUDGET_SPENT:
                more = more_words(state.account.view())
                yield Text(f"  {CLI.command('extend', state.thread, '--budget', more)}", "bold")
            elif words := limits_words(state.view()["limits"]):
                yield Text(f"  {words}", "red")

    def _waiting(self) -> Iterator[Text]:
        if self.state.status == "waiting_message":
            yield Text(f"Waiting for a message until {until(self.state.idle.until)}", "bold")

    def _spinning(self) -> Iterator[Spinner]:
        if self.state.status == "running":
            calls = running_calls(self._recent)
            self._spinner.update(text=Text("tools are running" if calls else "waiting for the LLM", "dim"))
            yield self._spinner

    def _request(self, request: JSON, terms: Sequence[str]) -> Iterator[Text]:
        """The request in full: the question, the arguments, and who decides by when."""
        place = f" ({self.keys.place} open)" if self.keys.place else ""
        head = request_head(request)
        head.rstrip()
        yield Text.assemble(head, (place, "yellow"))
        asked = readable_json(request["arguments"])
        if self.keys.edited is None:
            yield from (Text(f"  {line}") for line in asked.split("\n"))
        else:
            yield Text("  Edited; to run with the lines marked + in place of those marked -:", "bold")
            yield from compared(asked.split("\n"), readable_json(self.keys.edited).split("\n"))
        yield from (Text(f"  {line}", "dim") for line in terms)

    def _bottom(self) -> Iterator[Text]:
        """What the user types, notes and the keys: all of it is shown."""
        keys, request = self.keys, self.keys.request
        if keys.decision:
            asks = ASKS.get(keys.decision, "reason")
            yield Text.assemble(
                (f"{keys.decision}: ", "bold"), f"{asks} (Enter sends, Esc cancels): {visible(keys.typed)}▌"
            )
        elif request is not None and not keys.composing:
            seen = self.seen(request)
            others, edited = bool(keys.place), keys.edited is not None
            hints = hints_for(request, seen=seen, edited=edited, others=others)
            yield Text(hints if seen else f"[space] read on, to approve   {hints}", "bold")
        if keys.composing:
            yield Text.assemble(("message: ", "bold"), f"(Enter sends, Esc cancels): {visible(keys.typed)}▌")
        if words := self.note or self.explain(self.pressed):
            yield Text(brief(words, 300), "yellow")
        yield Text(self._hints(), "dim")

    def _hints(self) -> str:
        postponed = len(self.keys.postponed & {name_of(each) for each in self.keys.requests})
        hints = [f"[p] show {postponed} postponed"] if postponed else []
        hints += ["[r] retry"] if self.keys.blocked else []
        hints += [] if self.state.outcome else ["[P] resume" if self.keys.paused else "[P] pause"]
        return "   ".join([*hints, "[m] send a message", "[q] leave; the run continues"])

    def _rows(self, lines: Iterator[Text] | Sequence[Text], *, most: int) -> list[Text]:
        """Lines as rows of the screen; of too many, the last ones."""
        rows = [row for line in lines for row in line.wrap(self._console, max(1, self._console.width))]
        return rows if len(rows) <= most else [Text("…", "yellow"), *rows[len(rows) - most + 1 :]]

    def _cut(self, lines: Sequence[Text], *, most: int) -> list[Text]:
        """Each line as one row, with a mark where it is cut; of too many, the first ones."""
        for line in lines:
            line.truncate(self._console.width, overflow="ellipsis")
        return [*lines][:most]


def compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Text]:
    """All lines of both texts, once where they are the same, and marked `-` or `+` where they are not."""
    # `ndiff` also compares the characters of lines, and fails on thousands of them.
    changes = difflib.unified_diff(before, after, n=max(len(before), len(after)), lineterm="")
    lines = [*changes][3:] or [f" {line}" for line in after]
    for line in lines:
        yield Text(f"{line[0]} {line[1:]}", _CHANGES.get(line[0], ""))


def until(end: datetime | None) -> str:
    """The time at which a run closes that gets no message."""
    return end.astimezone().strftime("%H:%M:%S") if end else "later"


class Scrolling:
    """A text that may be longer than its place on the screen: the rows that are shown, and those that have been.

    People decide on what they have seen. So a long line is wrapped and never cut, and each row that was on the screen
    is remembered until the text or the width changes.
    """

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
