"""`holdfast.run`: one task in a program, from its beginning to its result.

A task is done once, however often the program is run: by default, its thread is named after the catalog's task queue,
the agent and the task. So a program that was killed is run again, and finds its results and its open runs.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, overload

from pydantic import BaseModel, TypeAdapter
from typing_extensions import Unpack

from holdfast.api.sync import Loop
from holdfast.api.thread import Thread
from holdfast.api.views import Result
from holdfast.client.reading.runs import ENDED
from holdfast.client.start_options import check_task
from holdfast.config.programs import CLI
from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.agents.catalog import Catalog
from holdfast.core.base.canonical import digest
from holdfast.core.base.text import visible
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.tools.typed_context import context_values
from holdfast.endpoints.script import Reply, Script
from holdfast.errors import ThreadNotFound
from holdfast.hosting.running import open_client, running

REPORT_SECONDS: Final = 1.0
"""How often a run is looked at, to say what it waits for."""

T = TypeVar("T")

_CONTENT: Final[TypeAdapter[Any]] = TypeAdapter(Content)
log = logging.getLogger("holdfast")


class TaskOptions(TypedDict, total=False):
    """The options of `run`, which explains them."""

    agent: str | None
    thread: str | None
    workspace: str | Path | None
    budget: Budget | None
    context: BaseModel | Mapping[str, object] | None
    unattended: bool
    when_blocked: WhenBlocked | None
    nodes: Sequence[str]
    script: Script | Sequence[Reply] | None
    task_queue: str | None
    home: Path | str | None
    by: str | None


@overload
async def run(catalog: Catalog, task: Content, *, result: None = None, **options: Unpack[TaskOptions]) -> Result: ...
@overload
async def run(catalog: Catalog, task: Content, *, result: type[T], **options: Unpack[TaskOptions]) -> T: ...
@overload
async def run(catalog: Catalog, task: Content, *, result: Any, **options: Unpack[TaskOptions]) -> Any: ...
async def run(
    catalog: Catalog,
    task: Content,
    *,
    agent: str | None = None,
    result: Any = None,
    thread: str | None = None,
    workspace: str | Path | None = None,
    budget: Budget | None = None,
    context: BaseModel | Mapping[str, object] | None = None,
    unattended: bool = False,
    when_blocked: WhenBlocked | None = None,
    nodes: Sequence[str] = (),
    script: Script | Sequence[Reply] | None = None,
    task_queue: str | None = None,
    home: Path | str | None = None,
    by: str | None = None,
) -> Any:
    """Do one task in this program, and return its result.

        report = await holdfast.run(catalog, "Audit the orders of May", agent="auditor", result=Report)

    It uses the block of `running` that this event loop has open for the catalog, or else opens one for the task. While
    the run waits for a person, the logger `holdfast` says for what, and how to answer from another terminal.

    A task is done once: repeated, in this program or in a later one, the call continues the run that is open, or
    returns the result (or raises the failure) that is recorded. For a task that is to be done each time, name its
    thread: `thread=f"report-{date}"`.

    Args:
        catalog: The agents and tools.
        task: The task: text, or content blocks.
        agent: The agent's name; None for the catalog's first.
        result: The type of the result, as in `Agent(result=…)`, such as a model or a union; None to return a `Result`.
        thread: The thread's id; None for one that is derived from the task queue, the agent, the task and the context.
        workspace: A folder for the run; None for the thread's own folder.
        budget: The steps, tokens, money and time that the run may use, within the agent's own budget.
        context: As for `Client.start`, and so are `unattended`, `when_blocked` and `nodes`.
        unattended: See `context`.
        when_blocked: See `context`.
        nodes: See `context`.
        script: As for `running`, and so are `task_queue`, `home` and `by`.
        task_queue: See `script`.
        home: See `script`.
        by: See `script`.

    Raises:
        RunFailed: The run failed.
        RunCancelled: The run was cancelled.
        ResultNotStructured: The result does not have the type `result`.
        TaskDiffers: The thread has another task, agent or context, or other nodes.
        ContextInvalid: The context cannot be recorded.
        CatalogError: The catalog has no such agent.
        HoldfastError: See `running`.
    """
    # Each of these may refuse, before anything starts.
    name, task, values = catalog.spec(agent, default_llm="").name, check_task(task), context_values(context)
    async with AsyncExitStack() as cleanup:
        client = open_client(catalog, task_queue=task_queue, home=home)
        if client is None:
            block = running(catalog, script=script, task_queue=task_queue, home=home, by=by)
            client = await cleanup.enter_async_context(block)
        if thread is None:
            await _say_if_done(client.thread(thread := thread_of(client.task_queue, name, task, values)))
        started = await client.start(
            task,
            agent=agent,
            thread=thread,
            workspace=workspace,
            by=by,
            budget=budget,
            context=values,
            unattended=unattended,
            when_blocked=when_blocked,
            nodes=nodes,
        )
        ended = await _attend(started)
    return ended if result is None else ended.parse(result)


@overload
def run_sync(catalog: Catalog, task: Content, *, result: None = None, **options: Unpack[TaskOptions]) -> Result: ...
@overload
def run_sync(catalog: Catalog, task: Content, *, result: type[T], **options: Unpack[TaskOptions]) -> T: ...
@overload
def run_sync(catalog: Catalog, task: Content, *, result: Any, **options: Unpack[TaskOptions]) -> Any: ...
def run_sync(catalog: Catalog, task: Content, **options: Any) -> Any:
    """Do one task in this program, and return its result: `run` for programs without an event loop.

    It blocks its thread, and works where an event loop runs, as in a notebook.
    """
    with closing(Loop()) as loop:
        return loop.run(run(catalog, task, **options))


def thread_of(task_queue: str, agent: str, task: Content, context: Mapping[str, Any] | None = None) -> str:
    """Return the thread in which `run` does a task: the same each time, such as `support-3f9a12c4b7d0`.

    Args:
        task_queue: The catalog's task queue, which keeps the tasks of two programs apart.
        agent: The agent's name.
        task: The task, checked.
        context: The fields of the run's context; None for no context.
    """
    named = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in agent)[:64].strip("-")
    given = [context] if context is not None else []
    form = digest(["run/1", task_queue, agent, _CONTENT.dump_python(task, mode="json"), *given])
    return f"{named or 'run'}-{form[:12]}"


async def _say_if_done(thread: Thread) -> None:
    """Say that the result of a task is an earlier one."""
    with suppress(ThreadNotFound):
        if (state := await thread.state()).status in ENDED.values():
            log.warning(
                "thread %s has done this task already (%s). To do it again, name another thread: thread=…",
                thread.id,
                state.status,
            )


async def _attend(thread: Thread) -> Result:
    """Wait for the answer of a run, and say what it waits for meanwhile."""
    ending = asyncio.ensure_future(thread.result())
    said = ""
    try:
        while not (await asyncio.wait({ending}, timeout=REPORT_SECONDS))[0]:
            look = asyncio.ensure_future(thread.result(until="attention"))
            try:
                await asyncio.wait({ending, look}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                look.cancel()
            if ending.done():
                break
            now = look.result()
            if now.status == "waiting_message":  # it has answered, and stays open for more
                return now
            if said != (said := _need(now)) and said:
                log.warning("%s", said)
        return ending.result()
    finally:
        ending.cancel()


def _need(now: Result) -> str:
    """Return what a run waits for, and how to answer from another terminal; empty if it needs nobody."""
    thread = now.thread
    if now.pending:
        asked = ", ".join(f"{each.tool} (request {each.request})" for each in now.pending)
        first = now.pending[0]
        return f"thread {thread} waits for a decision: {asked}. {CLI.command(first.answers[0], thread, first.request)}"
    if now.blocked:
        why = " ".join(visible(f"{now.blocked.cause}: {now.blocked.message}").split())  # a provider wrote it
        return f"thread {thread} is blocked ({why}). When that is fixed: {CLI.command('retry', thread)}"
    if now.paused:
        return f"thread {thread} is paused. {CLI.command('resume', thread)}"
    return ""
