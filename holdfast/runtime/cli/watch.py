"""The live view: events scroll by; below them are the status, the running calls and the open request, which the user
decides in place. Leaving the view does not change the run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from holdfast.authority.statements import Decision, parsed
from holdfast.errors import EventOutOfPlace, HoldfastError
from holdfast.log.events import EVENTS
from holdfast.run.evolve import evolve
from holdfast.run.state import RunState
from holdfast.runtime.cli.event_lines import event_line, running_calls
from holdfast.runtime.cli.keyboard import typed_characters
from holdfast.runtime.cli.keys import ASKS, Answer, Keys, Message, hints_for
from holdfast.runtime.cli.screens import STATUS_STYLES, request_head, retry_words, terms_words, tokens_words
from holdfast.runtime.cli.text import arguments_text, brief, indented, visible
from holdfast.runtime.client.decisions import UpdateResult, decide, retry
from holdfast.runtime.client.follow import follow
from holdfast.runtime.client.messages import say
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.encryption.signing_keys import check_shown, signed
from holdfast.runtime.programs import CLI
from holdfast.runtime.reading.runs import Retrying, retrying

LOOK_SECONDS = 2.0
"""How often to ask Temporal which calls are being retried; events report that only afterwards."""


class View:
    """The state of the live view: a fold over the events so far.

    Args:
        thread: The thread id.
        console: The terminal.
    """

    def __init__(self, thread: str, console: Console) -> None:
        self.state = RunState(thread=thread)
        self.keys = Keys(seen=lambda request: self._shown(request)[1])
        self.note = ""
        self.retrying: Sequence[Retrying] = ()
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
        requests = [
            {**request.view(), "thread": self.state.thread, "arguments": parsed(request.arguments)}
            for request in self.state.authority.requests
        ]
        self.keys.update(requests, blocked=self.state.blocked is not None)

    def __rich__(self) -> RenderableType:
        """The part below the events."""
        state = self.state
        agent = state.spec.name if state.spec else "loading…"
        head = Text.assemble(
            (state.status.replace("_", " "), STATUS_STYLES.get(state.status, "")),
            f"  agent {agent}, step {state.steps.count}  ",
            (tokens_words(state.usage.model_dump()), "dim"),
        )
        parts: list[RenderableType] = [Text("─" * min(self._console.width, 80), "dim"), head]
        calls = running_calls(self._recent)
        parts += [Text(f"  {call}", "cyan") for call in calls]
        now = datetime.now(UTC)
        parts += [Text(f"  retrying {retry_words(each, now=now)}", "yellow") for each in self.retrying]
        if state.blocked:
            parts.append(Text(f"Blocked: {brief(f'{state.blocked.cause}: {state.blocked.message}', 400)}", "bold red"))
        if request := self.keys.request:
            parts += self._question(request)
        elif state.status == "waiting_message":
            parts.append(Text(f"Waiting for a message until {until(state.idle.until)}", "bold"))
        elif state.status == "running":
            self._spinner.update(text=Text("tools are running" if calls else "waiting for the LLM", "dim"))
            parts.append(self._spinner)
        if self.keys.composing:
            parts.append(
                Text.assemble(("message: ", "bold"), f"(Enter sends, Esc cancels): {visible(self.keys.typed)}▌")
            )
        if self.note:
            parts.append(Text(brief(self.note, 300), "yellow"))
        parts.append(Text(self._hints(), "dim"))
        return Group(*parts)

    def _question(self, request: JSON) -> Iterator[Text]:
        head = request_head(request)
        head.rstrip()
        yield head
        lines, whole = self._shown(request)
        yield Text(indented("\n".join(lines), "    "))
        if not whole:
            yield Text(f"    … more is not shown; digest {request['digest']}", "yellow")
            yield Text(f"    to let it run, read it first: {CLI.command('pending', request['thread'])}", "yellow")
        if words := terms_words(request):
            yield Text(f"  {words}", "dim")
        if self.keys.decision:
            asks = ASKS.get(self.keys.decision, "reason")
            yield Text.assemble(
                (f"{self.keys.decision}: ", "bold"), f"{asks} (Enter sends, Esc cancels): {self.keys.typed}▌"
            )
        else:
            yield Text(hints_for(request, seen=whole), "bold")

    def _shown(self, request: JSON) -> tuple[list[str], bool]:
        """The lines of a request's arguments that fit, and whether those are all."""
        room, width = max(3, self._console.height - 15), max(20, self._console.width - 4)
        lines = arguments_text(request["arguments"]).splitlines()
        rows = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
        return rows[:room], len(rows) <= room

    def _hints(self) -> str:
        postponed = len(self.keys.postponed & {each["request"] for each in self.keys.requests})
        hints = [f"[p] show {postponed} postponed"] if postponed else []
        hints += ["[r] retry"] if self.keys.blocked else []
        return "   ".join([*hints, "[m] send a message", "[q] leave; the run continues"])


def until(end: datetime | None) -> str:
    """The time at which a run closes that gets no message."""
    return end.astimezone().strftime("%H:%M:%S") if end else "later"


async def watch(threads: Threads, thread: str, *, console: Console, by: str, private: str | None = None) -> bool:
    """Show a run until it ends or the user leaves.

    Args:
        threads: The threads.
        thread: The thread id.
        console: The terminal.
        by: The name of the person who decides.
        private: The key to sign decisions with; None to sign nothing.

    Returns:
        Whether the run ended.
    """
    view = View(thread, console)
    with typed_characters() as characters, Live(view, console=console, refresh_per_second=8, transient=True) as live:
        silence = ""

        def note(words: str) -> None:
            nonlocal silence
            view.note = silence = words

        def quiet() -> None:
            if view.note == silence:
                view.note = ""

        async def show() -> None:
            async for event in follow(threads, thread, note=note, pulse=quiet):
                view.add(event)
                line = event_line(event)
                line.truncate(console.width, overflow="ellipsis")
                live.console.print(line)

        async def look() -> None:
            while True:
                with suppress(HoldfastError):  # `show` reports it, if it lasts
                    view.retrying = retrying(await threads.runs.describe(thread))
                await asyncio.sleep(LOOK_SECONDS)

        async def answer() -> None:
            while True:
                result = view.keys.key(await characters.get())
                if result == "leave":
                    return
                if result is not None:
                    view.note = await _send(threads, thread, result, by=by, private=private)
                live.refresh()

        return await _first(show, answer, look)


async def _first(*functions: Callable[[], Awaitable[None]]) -> bool:
    """Run the functions concurrently until one ends; returns whether it was the first one, and raises its error."""
    tasks = [asyncio.ensure_future(function()) for function in functions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return tasks[0] in done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send(
    threads: Threads, thread: str, order: Answer | Message | Literal["retry"], *, by: str, private: str | None
) -> str:
    """Send a decision, a message or a retry; returns a note for the screen, or nothing where the log will show it."""
    try:
        if isinstance(order, Message):
            sent = await say(threads, thread, order.text, by=by, private=private)
            return "" if sent.outcome == "accepted" else f"{sent.outcome}: {sent.explanation}"
        if not isinstance(order, Answer):
            decided = await retry(threads, thread, by=by)
        else:
            decided = await _decide(threads, thread, order, by=by, private=private)
    except HoldfastError as error:
        return str(error)
    return "" if decided.outcome == "accepted" else f"{decided.outcome}: {decided.explanation}"


async def _decide(threads: Threads, thread: str, answer: Answer, *, by: str, private: str | None) -> UpdateResult:
    payload = {
        "decision": answer.decision,
        "request": answer.request["request"],
        "by": by,
        "reason": answer.reason,
        "digest": answer.request["digest"],
    }
    if answer.decision in ("happened", "respond") and answer.reason:
        payload |= {"result": answer.reason, "reason": ""}
    if private:
        check_shown(answer.request)
        payload = signed(payload, Decision, thread=thread, private=private)
    return await decide(threads, thread, payload)
