"""The live view below the events: the status, the running calls, and the request to decide.

1. Everything fits the terminal, however small. Longer text scrolls, and shows how much is above and below.
2. A decision that lets a call run is offered only after every row of the request has been on the screen.
"""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from holdfast.cli.screens.costs import budget_text, more_text
from holdfast.cli.screens.keys import ASKS, Keys, RequestKey, choices_for, decision_of, hints_for, request_key
from holdfast.cli.screens.request_screens import claim_lines, preview_lines, request_head, request_terms
from holdfast.cli.screens.thread_screens import STATUS_STYLES
from holdfast.cli.screens.thread_words import limits_text, pause_text, retry_text, tokens_text
from holdfast.cli.text import brief, visible
from holdfast.client.reading.recent import running_calls
from holdfast.client.reading.runs import Retrying
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI
from holdfast.core.base.canonical import parsed
from holdfast.core.base.readable_json import readable_call
from holdfast.core.base.text import wrapped
from holdfast.core.log.events import EVENTS
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.deciders import request_view
from holdfast.core.run.views.status import limits_of
from holdfast.core.run.views.web_ui import HARMLESS
from holdfast.core.streams.drafts import Draft
from holdfast.errors import EventOutOfPlace

DRAFT_CHARS = 4_000
"""The most characters of a reply that is being written; the log shows the whole one."""

SUBAGENT_CHARS = 200
"""The most characters of a reply that a sub-agent is writing: its end, on one row."""

FEWEST_ROWS = 2
"""The minimum number of rows of a request, on the smallest terminal."""

_SCROLLING = {" ": "page_down", "b": "page_up"}
"""Keys that scroll while the user is not typing text."""

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
        """The rows of the request on the screen."""
        self.note = ""
        self.pressed = ""
        """The last key. If it did nothing, the reason is shown until the next key."""
        self.retrying: Sequence[Retrying] = ()
        self.below: Sequence[Text] = ()
        """The sub-agents, each on a line."""
        self._subagent_requests: Sequence[JSON] = ()
        """The open requests of sub-agents."""
        self._console = console
        self.draft = Draft()
        """The reply that the LLM is writing, which nobody has recorded."""
        self.subagent_drafts: Mapping[str, Draft] = {}
        """The same for sub-agents, by thread."""
        self._recent: list[JSON] = []
        self._spinner = Spinner("dots")

    def add(self, event: JSON) -> None:
        """Add the next event."""
        self.draft.event(event)
        try:
            self.state = evolve(self.state, EVENTS.validate_python([event])[0])
        except ValidationError:
            self.note = "a newer release recorded this run; this view may not show all of it"
        except EventOutOfPlace:
            self.note = "earlier events of this thread are missing; this view may not show all of it"
        if event["type"] == "llm_replied":
            self._recent.clear()  # calls of earlier steps are all finished
        self._recent.append(event)
        self._update_requests()
        self.keys.paused = self.state.pause is not None

    def update_subagents(self, rows: Sequence[Text], requests: Sequence[JSON]) -> None:
        """Update the rows of the sub-agents, and their open requests, which come after the run's own."""
        self.below, self._subagent_requests = rows, requests
        self._update_requests()

    def remove_request(self, request: JSON) -> None:
        """Remove a decided request from the view; the next poll of the sub-agents replaces the list."""
        self._subagent_requests = [
            each for each in self._subagent_requests if request_key(each) != request_key(request)
        ]
        self._update_requests()

    def _update_requests(self) -> None:
        """Pass the open requests of the run and of its sub-agents to the keys, in one list."""
        own = [
            {**request_view(self.state, request), "thread": self.state.thread, "arguments": parsed(request.arguments)}
            for request in self.state.authority.requests
        ]
        blocked = self.state.blocked is not None and self.state.blocked.cause != BUDGET_SPENT  # `retry` does not help
        self.keys.update([*own, *self._subagent_requests], blocked=blocked)

    def seen(self, request: JSON) -> bool:
        """Whether all of a request, with the arguments that would run, has been on the screen."""
        return self.scrolling.seen(self._scroll_key(request))

    def _scroll_key(self, request: JSON) -> tuple[RequestKey, str, str]:
        return request_key(request), request["digest"], str(self.keys.edited)

    def scroll(self, key: str) -> bool:
        """Scroll the request on the screen, if the key does that."""
        if self.keys.request is None:
            return False
        return self.scrolling.key(key if self.keys.typing else _SCROLLING.get(key, key))

    def explain(self, key: str) -> str:
        """Return why a key that would let a call run is disabled; empty if it is not."""
        request = self.keys.request
        if request is None or self.keys.typing or self.seen(request):
            return ""
        word = choices_for(request).get(key, "deny")
        if decision_of(word) in HARMLESS:
            return ""
        return f"read all of it first: {self.scrolling.unseen_text} were not on the screen yet; [space] pages on"

    def __rich__(self) -> RenderableType:
        """Return the part below the events."""
        width, height = self._console.width, self._console.height - 1  # the cursor is on the last row
        request = self.keys.request
        if request is None:
            bottom = self._rows(self._bottom(), most=max(1, height - FEWEST_ROWS))
            top = self._rows([*self._top(), *self._waiting()], most=max(1, height - len(bottom) - 1))
            room = height - len(bottom) - len(top) - 1
            draft = self._rows(self._draft(), most=room) if room > 0 else []
            return Group(*top, *draft, *self._spinning(), *bottom)
        terms = request_terms(request)
        self.scrolling.lay_out(
            lambda: self._request(request, terms),
            width=width,
            key=self._scroll_key(request),
            version=(terms, self.keys.position),
        )
        before = self.seen(request)
        parts = self._layout(height)
        return parts if before == self.seen(request) else self._layout(height)  # now more keys are enabled

    def _layout(self, height: int) -> Group:
        """Return the request between the status and the keys, with as many of its rows as fit."""
        bottom = self._rows(self._bottom(), most=max(1, height - FEWEST_ROWS - 2))
        left = height - len(bottom) - 1  # one row shows how much is above and below
        top = self._cut([*self._top()], most=max(1, left - max(FEWEST_ROWS, len(self.scrolling.rows))))
        shown = self.scrolling.show(left - len(top))
        mark = self.scrolling.mark
        return Group(*top, *shown, *self._cut([Text(f"── {mark} ──", "bold yellow")] if mark else [], most=1), *bottom)

    def _top(self) -> Iterator[Text]:
        """Yield the status, the running calls, and why the run is blocked: each may be cut to one row."""
        state = self.state
        agent = brief(state.spec.name) if state.spec else "loading…"
        yield Text.assemble(
            (state.status.replace("_", " "), STATUS_STYLES.get(state.status, "")),
            f"  agent {agent}, step {state.steps.count}  ",
            (tokens_text(state.usage.model_dump()), "dim"),
        )
        if budget := budget_text(state.account.view()):
            yield Text(f"Budget: {budget}".replace("\n", " · "), "dim")
        if self.keys.request is None:
            yield Text("─" * min(self._console.width, 80), "dim")
        for call in running_calls(self._recent):
            yield Text(f"  {visible(call)}", "cyan")
        yield from self.below
        now = datetime.now(UTC)
        for each in self.retrying:
            yield Text(f"  {'paused' if each.paused else 'retrying'} {retry_text(each, now=now)}", "yellow")
        if state.pause:
            why = f": {state.pause.reason}" if state.pause.reason else ""
            pause = f"Paused by {state.pause.by}{pause_text(state.pause.view())}{why}"
            yield Text(brief(pause, 400), "bold blue")
        if state.dormancy.waits:
            yield Text(brief(f"Dormant, and waits for {state.dormancy.words}", 400), "bold blue")
        if state.blocked:
            yield Text(f"Blocked: {brief(f'{state.blocked.cause}: {state.blocked.message}', 400)}", "bold red")
            if state.blocked.cause == BUDGET_SPENT:
                more = more_text(state.account.view())
                yield Text(f"  {CLI.command('extend', state.thread, '--budget', more)}", "bold")
            elif limits := limits_text(limits_of(state)):
                yield Text(f"  {limits}", "red")

    def _waiting(self) -> Iterator[Text]:
        if self.state.status == "waiting_message":
            yield Text(f"Waiting for a message until {until(self.state.idle.until)}", "bold")

    def _draft(self) -> Iterator[Text]:
        """Yield the end of the reply that the LLM is writing."""
        draft = self.draft
        if draft.reasoning and not draft.text:
            yield Text(brief(draft.reasoning[-DRAFT_CHARS:], DRAFT_CHARS), "dim italic")
        yield from (Text(visible(line)) for line in draft.text[-DRAFT_CHARS:].splitlines())
        for call in draft.calls.values():
            yield Text(f"  {brief(call.tool)} {brief(call.arguments[-DRAFT_CHARS:], 200)}", "cyan dim")
        for thread, each in list(self.subagent_drafts.items()):  # another thread draws
            calls = "".join(f"{call.tool} {call.arguments[-SUBAGENT_CHARS:]}" for call in list(each.calls.values()))
            if written := each.text or calls or each.reasoning:
                words, head = " ".join(visible(written[-SUBAGENT_CHARS:]).split()), f"  {brief(thread)}: "
                while words and cell_len(head + words) > self._console.width:
                    words = words[1:]
                yield Text.assemble((head, "dim"), words)

    def _spinning(self) -> Iterator[Spinner]:
        if self.state.status == "running":
            calls = running_calls(self._recent)
            self._spinner.update(text=Text("tools are running" if calls else "waiting for the LLM", "dim"))
            yield self._spinner

    def _request(self, request: JSON, terms: Sequence[str]) -> Iterator[Text]:
        """Yield the full request: the question, the arguments, and who decides by when."""
        position = f" ({self.keys.position} open)" if self.keys.position else ""
        head = request_head(request)
        head.rstrip()
        yield Text.assemble(head, (position, "yellow"))
        if self.keys.edited is None:
            shown = readable_call(request["arguments"], request.get("context"))
            yield from (Text(f"  {line}") for line in shown.split("\n"))
        else:
            yield Text("  Edited; to run with the lines marked + in place of those marked -:", "bold")
            context = request.get("context")
            before, after = readable_call(request["arguments"], context), readable_call(self.keys.edited, context)
            yield from diff_lines(before.split("\n"), after.split("\n"))
        if self.keys.edited is None or not request.get("preview"):
            yield from (Text.assemble("  ", line) for line in preview_lines(request))
        else:
            yield Text("  The preview is not shown: it is of the arguments before the edit.", "bold")
        yield from (Text.assemble("  ", line) for line in claim_lines(request))
        yield from (Text(f"  {line}", "dim") for line in terms)

    def _bottom(self) -> Iterator[Text]:
        """Yield the user's input, notes and the keys, none of which is ever cut."""
        keys, request = self.keys, self.keys.request
        if keys.decision:
            asks = ASKS.get(keys.decision, "reason")
            yield Text.assemble(
                (f"{keys.decision}: ", "bold"), f"{asks} (Enter sends, Esc cancels): {visible(keys.typed)}▌"
            )
        elif request is not None and not keys.composing:
            seen = self.seen(request)
            others, edited = bool(keys.position), keys.edited is not None
            hints = hints_for(request, seen=seen, edited=edited, others=others)
            yield Text(hints if seen else f"[space] read on, to approve   {hints}", "bold")
        if keys.composing:
            yield Text.assemble(("message: ", "bold"), f"(Enter sends, Esc cancels): {visible(keys.typed)}▌")
        if note := self.note or self.explain(self.pressed):
            yield Text(brief(note, 300), "yellow")
        yield Text(self._hints(), "dim")

    def _hints(self) -> str:
        postponed = len(self.keys.postponed & {request_key(each) for each in self.keys.requests})
        hints = [f"[p] show {postponed} postponed"] if postponed else []
        hints += ["[r] retry"] if self.keys.blocked else []
        hints += [] if self.state.outcome else ["[P] resume" if self.keys.paused else "[P] pause"]
        return "   ".join([*hints, "[m] send a message", "[q] leave; the run continues"])

    def _rows(self, lines: Iterator[Text] | Sequence[Text], *, most: int) -> list[Text]:
        """Return lines as rows of the screen; if there are too many, the last ones."""
        rows = [row for line in lines for row in line.wrap(self._console, max(1, self._console.width))]
        return rows if len(rows) <= most else [Text("…", "yellow"), *rows[len(rows) - most + 1 :]]

    def _cut(self, lines: Sequence[Text], *, most: int) -> list[Text]:
        """Return each line as one row, with a mark if it is cut; if there are too many, the first ones."""
        for line in lines:
            line.truncate(self._console.width, overflow="ellipsis")
        return [*lines][:most]


def diff_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[Text]:
    """Yield all lines of both texts: common lines once, the others marked `-` or `+`."""
    # Not `ndiff`: it also compares the characters of lines, and fails on thousands of lines.
    changes = difflib.unified_diff(before, after, n=max(len(before), len(after)), lineterm="")
    lines = [*changes][3:] or [f" {line}" for line in after]
    for line in lines:
        yield Text(f"{line[0]} {line[1:]}", _CHANGES.get(line[0], ""))


def until(end: datetime | None) -> str:
    """Return the time at which a run without a new message closes."""
    return end.astimezone().strftime("%H:%M:%S") if end else "later"


class Scrolling:
    """A text that may be longer than its area of the screen: the visible rows, and the rows seen so far.

    People decide on what they have seen. So a long line is wrapped and never cut, and each row that was on the screen
    is remembered until the text or the width changes.
    """

    def __init__(self) -> None:
        self.rows: list[Text] = []
        self.room = 1
        """The number of rows that are visible at a time."""
        self._first = 0
        self._seen: set[int] = set()
        self._key: tuple[Hashable, int] | None = None
        self._laid_out: Hashable = None

    def lay_out(self, lines: Callable[[], Iterable[Text]], *, width: int, key: Hashable, version: Hashable) -> None:
        """Set the text.

        Args:
            lines: Returns the lines.
            width: Columns of the screen.
            key: Identifies the subject of the text. A text with another key or width has not been seen.
            version: Changes when the lines change.
        """
        if (key, width, version) != self._laid_out:
            self.rows = [row for line in lines() for row in rows_of(line, width)]
            self._laid_out = (key, width, version)
        if (key, width) != self._key:
            self._key, self._first, self._seen = (key, width), 0, set()

    def show(self, room: int) -> list[Text]:
        """Return the visible rows, at most `room`, and mark them as seen."""
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
        """The numbers, from 1, of the rows that have not been on the screen yet."""
        return [number + 1 for number in range(len(self.rows)) if number not in self._seen]

    def seen(self, key: Hashable) -> bool:
        """Whether every row of the text with this key has been on the screen, at the present width."""
        return self._key is not None and self._key[0] == key and not self.unseen

    @property
    def mark(self) -> str:
        """How many rows are above and below; empty if everything is on the screen."""
        above, below = self._first, max(0, len(self.rows) - self._first - self.room)
        if not above and not below:
            return ""
        parts = [f"▲ {above:,} rows above"] if above else []
        parts += [f"▼ {below:,} rows below"] if below else ["the end"]
        return ", ".join(parts)

    @property
    def unseen_text(self) -> str:
        """The rows that have not been on the screen yet: `rows 12 to 40 of 60`."""
        missing = self.unseen
        if not missing:
            return ""
        last = next((a for a, b in zip(missing, [*missing[1:], 0], strict=True) if b != a + 1), missing[-1])
        more = ", and others," if last != missing[-1] else ""
        return f"rows {missing[0]:,} to {last:,}{more} of {len(self.rows):,}"


def rows_of(line: Text, width: int) -> list[Text]:
    """Return a whole line as rows of at most `width` columns, with a mark on each continuation row."""
    if cell_len(line.plain) <= width and "\t" not in line.plain:
        return [line]
    return [Text(row, line.style) for row in wrapped(line.plain, width, columns=cell_len)]
