"""Watch a run live: events scroll by above the view, and the user decides its requests in place.

The requests of its sub-agents are in the same list; a decision goes to the thread that asks. Leaving the view does not
change the run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.screens.edited_arguments import edit_arguments
from holdfast.cli.screens.event_lines import event_row
from holdfast.cli.screens.keyboard import Keyboard
from holdfast.cli.screens.keys import Answer, Edit, Message
from holdfast.cli.screens.live_view import View
from holdfast.cli.screens.tree_screens import node_lines
from holdfast.cli.text import brief
from holdfast.client.follow import follow
from holdfast.client.interventions import intervene
from holdfast.client.messages import say
from holdfast.client.reading.runs import retrying
from holdfast.client.threads import JSON, Threads
from holdfast.client.trees import Node, read_tree
from holdfast.config.programs import CLI
from holdfast.encryption.signing_keys import check_shown
from holdfast.errors import HoldfastError

ROWS_BELOW = 12
"""Rows for the sub-agents of a run: the rest of the screen is the run's own."""

LOOK_SECONDS = 2.0
"""How often to ask Temporal which calls are being retried; events report that only afterwards."""


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
    with Keyboard() as keyboard, ExitStack() as panels:

        def panel() -> Live:
            """A panel below what is on the screen. One that was stopped must not start again: it would erase that."""
            return panels.enter_context(Live(view, console=console, refresh_per_second=8, transient=True))

        live, silence = panel(), ""
        screen = asyncio.Lock()

        def note(words: str) -> None:
            nonlocal silence
            view.note = silence = words

        def quiet() -> None:
            if view.note == silence:
                view.note = ""

        async def show() -> None:
            async for event in follow(threads, thread, note=note, pulse=quiet):
                async with screen:  # an editor may have it
                    view.add(event)
                    live.console.print(event_row(event, console.width))

        async def look() -> None:
            while True:
                with suppress(HoldfastError):  # `show` reports it, if it lasts
                    view.retrying = retrying(await threads.runs.describe(thread))
                    view.look_below(*await _below(threads, view))
                await asyncio.sleep(LOOK_SECONDS)

        async def edit(order: Edit) -> str:
            nonlocal live
            async with screen:
                live.stop()
                try:
                    with keyboard.lent():
                        arguments = await edit_arguments(order.arguments)
                finally:
                    live = panel()
            if arguments is None:
                return "nothing was edited"
            return "" if view.keys.propose(order.request, arguments) else "the request is not open any more"

        async def answer() -> None:
            while True:
                key = view.pressed = await keyboard.key()
                if view.explain(key):
                    keyboard.drop()  # a reason that was typed ahead must not act as commands
                elif not view.scroll(key):
                    result = view.keys.key(key)
                    if result == "leave":
                        return
                    if isinstance(result, Edit):
                        view.note = await _noted(edit(result))
                    elif result is not None:
                        view.note = await _noted(send(threads, thread, result, by=by, private=private))
                        if isinstance(result, Answer):
                            view.decided(result.request)
                live.refresh()

        return await _first(show, answer, look)


async def _below(threads: Threads, view: View) -> tuple[list[Text], list[JSON]]:
    """The open sub-agents of a run, and theirs: a line for each, and their open requests."""
    if not view.state.subagents.open:
        return [], []
    tree = await read_tree(threads, view.state.thread, only=lambda child: child["status"] == "open")
    found = [(depth, node) for depth, node in tree.walk() if depth]
    asked = [request for _, node in found for request in node.pending]
    return rows_below(found, thread=view.state.thread), asked


def rows_below(runs: Sequence[tuple[int, Node]], *, thread: str) -> list[Text]:
    """The runs below a thread, each with its depth: where there are too many, those that ask for something first."""
    lines = [line for depth, node in runs for line in node_lines(node, depth)]
    if len(lines) <= ROWS_BELOW:
        return lines
    lines = [
        line for depth, node in sorted(runs, key=lambda run: not run[1].pending) for line in node_lines(node, depth)
    ]
    more = brief(CLI.command("show", thread, "--tree"), 300)
    return [*lines[: ROWS_BELOW - 1], Text(f"  … {len(runs)} sub-agents in all: {more}", "dim")]


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


async def _noted(act: Awaitable[str]) -> str:
    """Return a note for the screen: what the act returns, or its error."""
    try:
        return await act
    except HoldfastError as error:
        return str(error)


async def send(
    threads: Threads,
    thread: str,
    order: Answer | Message | Literal["retry", "pause", "resume"],
    *,
    by: str,
    private: str | None,
) -> str:
    """Send what a key has asked for; returns a note for the screen, or nothing where the log will show it."""
    if isinstance(order, Message):
        sent = await say(threads, thread, order.text, by=by, private=private)
        return "" if sent.outcome == "accepted" else f"{sent.outcome}: {sent.explanation}"
    if isinstance(order, Answer):
        given = _decision(order, by=by, private=private)
        decided = await intervene(threads, order.request["thread"], "decide", given, private=private)
    else:
        decided = await intervene(threads, thread, order, {"by": by}, private=private)
    return "" if decided.outcome == "accepted" else f"{decided.outcome}: {decided.explanation}"


def _decision(answer: Answer, *, by: str, private: str | None) -> dict[str, Any]:
    """Return the payload of a decision. It is bound to the request as shown, which is checked before it is signed."""
    payload: dict[str, Any] = {
        "decision": answer.decision,
        "request": answer.request["request"],
        "by": by,
        "reason": answer.reason,
        "digest": answer.request["digest"],
    }
    if answer.decision in ("happened", "respond") and answer.reason:
        payload |= {"result": answer.reason, "reason": ""}
    if answer.arguments is not None:
        payload["arguments"] = answer.arguments
    if answer.remember:
        payload["remember"] = True
    if private:
        check_shown(answer.request)
    return payload
