"""Watches a run live: events scroll above the view, and the user decides its requests in place.

The requests of its sub-agents are in the same list; a decision goes to the thread of its request. Leaving the view
does not change the run.
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
from holdfast.cli.screens.subagent_drafts import SubagentDrafts, following_subagents
from holdfast.cli.screens.tree_screens import node_lines
from holdfast.cli.text import brief
from holdfast.client.interventions import intervene
from holdfast.client.messages import say
from holdfast.client.reading.runs import retrying
from holdfast.client.threads import Threads
from holdfast.client.trees import Node, read_tree
from holdfast.config.programs import CLI
from holdfast.core.streams.chunks import Chunk
from holdfast.encryption.signing_keys import check_shown
from holdfast.errors import HoldfastError
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

ROWS_BELOW = 12
"""The most rows for sub-agents; the rest of the screen is for the run itself."""

POLL_SECONDS = 2.0
"""The interval of queries for calls that are being retried; events report retries only afterwards."""


async def watch(
    threads: Threads,
    thread: str,
    *,
    console: Console,
    by: str,
    private: str | None = None,
    hub: Hub | None = None,
) -> bool:
    """Show a run until it ends or the user leaves.

    Args:
        threads: The threads.
        thread: The thread id.
        console: The terminal.
        by: The name of the person who decides.
        private: The key to sign decisions with; None to sign nothing.
        hub: The streams, to show replies while they are written; None for none.

    Returns:
        Whether the run ended.
    """
    view = View(thread, console)
    async with following_subagents(threads, hub) as drafts:
        view.subagent_drafts = drafts.drafts
        return await _watch(threads, thread, view, drafts, console=console, by=by, private=private, hub=hub)


async def _watch(
    threads: Threads,
    thread: str,
    view: View,
    drafts: SubagentDrafts,
    *,
    console: Console,
    by: str,
    private: str | None,
    hub: Hub | None,
) -> bool:
    with Keyboard() as keyboard, ExitStack() as panels:

        def panel() -> Live:
            """Open a new panel below the screen's content. A stopped one would erase that if it were restarted."""
            return panels.enter_context(Live(view, console=console, refresh_per_second=8, transient=True))

        live, connection_note = panel(), ""
        screen = asyncio.Lock()

        def note(message: str) -> None:
            nonlocal connection_note
            view.note = connection_note = message

        def clear_note() -> None:
            if view.note == connection_note:
                view.note = ""

        async def show() -> None:
            async for each in read_stream(threads, hub, thread, note=note, pulse=clear_note):
                if isinstance(each, Chunk):
                    view.draft.add(each)
                    continue
                async with screen:  # an editor may be using it
                    view.add(each)
                    live.console.print(event_row(each, console.width))

        async def poll() -> None:
            while True:
                with suppress(HoldfastError):  # `show` reports a lasting error
                    view.retrying = retrying(await threads.runs.describe(thread))
                    nodes = await _subagents(threads, view)
                    drafts.follow([node.thread for _, node in nodes])
                    requests = [request for _, node in nodes for request in node.pending]
                    view.update_subagents(subagent_rows(nodes, thread=thread) if nodes else [], requests)
                await asyncio.sleep(POLL_SECONDS)

        async def edit(action: Edit) -> str:
            nonlocal live
            async with screen:
                live.stop()
                try:
                    with keyboard.suspended():
                        arguments = await edit_arguments(action.arguments)
                finally:
                    live = panel()
            if arguments is None:
                return "nothing was edited"
            return "" if view.keys.propose(action.request, arguments) else "the request is not open any more"

        async def process_keys() -> None:
            while True:
                key = view.pressed = await keyboard.key()
                if view.explain(key):
                    keyboard.clear()  # a reason that was typed ahead must not act as commands
                elif not view.scroll(key):
                    result = view.keys.key(key)
                    if result == "leave":
                        return
                    if isinstance(result, Edit):
                        view.note = await _note_of(edit(result))
                    elif result is not None:
                        view.note = await _note_of(send(threads, thread, result, by=by, private=private))
                        if isinstance(result, Answer):
                            view.remove_request(result.request)
                live.refresh()

        return await _first(show, process_keys, poll)


async def _subagents(threads: Threads, view: View) -> list[tuple[int, Node]]:
    """Return the open sub-agents at any depth, each with its depth below the run."""
    if not view.state.subagents.open:
        return []
    tree = await read_tree(threads, view.state.thread, only=lambda subagent: subagent["status"] == "open")
    return [(depth, node) for depth, node in tree.walk() if depth]


def subagent_rows(runs: Sequence[tuple[int, Node]], *, thread: str) -> list[Text]:
    """Return the rows of the runs below a thread, each with its depth; if too many, those with open requests first."""
    lines = [line for depth, node in runs for line in node_lines(node, depth)]
    if len(lines) <= ROWS_BELOW:
        return lines
    lines = [
        line for depth, node in sorted(runs, key=lambda run: not run[1].pending) for line in node_lines(node, depth)
    ]
    more = brief(CLI.command("show", thread, "--tree"), 300)
    return [*lines[: ROWS_BELOW - 1], Text(f"  … {len(runs)} sub-agents in all: {more}", "dim")]


async def _first(*functions: Callable[[], Awaitable[None]]) -> bool:
    """Run the functions concurrently until one ends; return whether it was the first one, or raise its error.

    The others are cancelled until they end: a library may ignore a cancellation, as `asyncio.wait_for` does before
    Python 3.12.
    """
    tasks = [asyncio.ensure_future(function()) for function in functions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return tasks[0] in done
    finally:
        while left := {task for task in tasks if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)
        await asyncio.gather(*tasks, return_exceptions=True)


async def _note_of(action: Awaitable[str]) -> str:
    """Return a note for the screen: the action's result, or its error."""
    try:
        return await action
    except HoldfastError as error:
        return str(error)


async def send(
    threads: Threads,
    thread: str,
    action: Answer | Message | Literal["retry", "pause", "resume"],
    *,
    by: str,
    private: str | None,
) -> str:
    """Send the action of a key; return a note for the screen, or nothing if the log will show the outcome."""
    if isinstance(action, Message):
        result = await say(threads, thread, action.text, by=by, private=private)
        return "" if result.outcome == "accepted" else f"{result.outcome}: {result.explanation}"
    if isinstance(action, Answer):
        decision = _decision(action, by=by, private=private)
        decided = await intervene(threads, action.request["thread"], "decide", decision, private=private)
    else:
        decided = await intervene(threads, thread, action, {"by": by}, private=private)
    return "" if decided.outcome == "accepted" else f"{decided.outcome}: {decided.explanation}"


def _decision(answer: Answer, *, by: str, private: str | None) -> dict[str, Any]:
    """Return the payload of a decision, bound to the request as shown; the request is checked before signing."""
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
