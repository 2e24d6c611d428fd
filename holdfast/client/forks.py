"""Fork a thread at one of its events.

A fork is a new thread whose log begins with the lines of its source thread, byte for byte. The client only names the
event; the worker that begins the fork reads the lines, so nothing is written before the start is recorded.
"""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from temporalio.exceptions import WorkflowAlreadyStartedError

from holdfast.client.imported_subagents import may_be_imported
from holdfast.client.reading.continuity import fork_of
from holdfast.client.reading.runs import ENDED
from holdfast.client.start_options import check_own_id, check_task, details, issued
from holdfast.client.threads import Threads
from holdfast.config.programs import CLI
from holdfast.core.authority.policy import Policy
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import Content
from holdfast.core.log.events import RunForked, RunStarted, UserMessageReceived
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.state.features import FORKS, level_of_start
from holdfast.core.tools.typed_context import context_values
from holdfast.errors import (
    EventsMissing,
    FleetKeyMissing,
    HistoryUnreadable,
    PositionInvalid,
    TaskInvalid,
    ThreadExists,
    ThreadNotFound,
)

_WITH_REPLY = ("tool_call_requested", "verdict_given", "preview_requested", "approval_requested", "tool_call_finished")
"""The events that directly follow an LLM's reply."""

LONGEST_LLM = 200
"""Maximum length of an LLM's name, in characters."""

JSON = dict[str, Any]


class Forked(NamedTuple):
    """A fork that was started."""

    thread: str
    """The fork's id."""
    run_id: str
    point: ForkPoint
    """The last event that it shares with its source thread."""
    new: bool
    """False if the same fork was already started under this id."""


def new_fork_id(thread: str) -> str:
    """Return an id for a fork, which begins with the source thread's."""
    return f"{thread[:180]}-fork-{secrets.token_hex(3)}".strip()


async def fork(
    threads: Threads,
    thread: str,
    *,
    at: int | None = None,
    id: str | None = None,
    say: Content | None = None,
    edit: Content | None = None,
    agent: str | None = None,
    llm: str = "",
    policies: tuple[Policy, ...] = (),
    keeps_policy: bool = False,
    workspace: str | None = None,
    idle_limit: float | None = None,
    by: str = "",
    by_proven: bool = True,
    context: object = None,
) -> Forked:
    """Fork a thread. Idempotent: the same fork under the same id is created once, and another attempt returns it.

    Args:
        threads: The namespace's threads.
        thread: The thread to fork, open or closed. It is not changed.
        at: The position of the last event to share, from 1 on; None for the thread's last. A position within an LLM's
            reply and its calls means the last of those calls.
        id: The fork's id; None for a new one that begins with the source thread's.
        say: A message with which the fork begins.
        edit: A message that replaces a person's last message up to `at`; later events are left out.
        agent: Another agent of the catalog, with its own LLM and policy; None for the thread's.
        llm: The LLM of its agents, at the worker's endpoint; empty for their own.
        policies: Policies that judge its calls in addition to its agent's: the strictest verdict counts.
        keeps_policy: Whether the policy of the thread's agent also judges its calls, even if the fork has another
            agent.
        workspace: A folder on the worker; None for a new folder with the files that the source thread had at that
            event.
        idle_limit: Seconds that the fork stays open for messages; None for the agent's own limit.
        by: The person who forks it.
        by_proven: Whether the caller has authenticated that person.
        context: Another typed context: an instance of the agent's model, or its fields; None for that of the thread at
            that event.

    Raises:
        ContextInvalid: The context cannot be recorded.
        PositionInvalid: The thread has no such event, no message that could be edited, or no policy to keep.
        ThreadNotFound: There is no such thread.
        ThreadIdInvalid: The id cannot be used.
        ThreadExists: There is another thread of that id.
        TaskInvalid: The message cannot be sent, or there are two.
        FleetKeyMissing: A fork needs the fleet key.
        EventsMissing: The thread's events can no longer be read.
        ServerUnreachable: The server does not answer. The start may have reached it: fork again under the same id.
    """
    values = context_values(context)
    check_own_id(thread)
    if len(llm) > LONGEST_LLM or llm != one_line(llm, LONGEST_LLM):
        raise TaskInvalid(f"the name of an LLM is one line of at most {LONGEST_LLM} characters")
    name = check_own_id(new_fork_id(thread) if id is None else id)
    if say is not None and edit is not None:
        raise TaskInvalid("a fork begins with one message: give `say` or `edit`, not both")
    message = say if edit is None else edit
    message = "" if message is None else check_task(message)
    if not threads.sealed:
        raise FleetKeyMissing(
            "a fork needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it, or fork through the gateway"
        )
    named = at
    if edit is not None:
        at = await _before_last_message(threads, thread, at)
    point = await fork_point(threads, thread, at)
    if named is None and await _was_moved(threads, point):
        raise PositionInvalid(
            f"thread {thread!r} was moved to another place, and continues there: name the event to fork it at with --at"
        )
    past = await _past_of(threads, point)
    if keeps_policy and agent is not None and not past.loaded:
        raise PositionInvalid(
            f"thread {thread!r} has no agent at event {point.position}, whose policy would judge the fork: "
            "fork it at a later event, or without another agent"
        )
    run_input = RunInput(
        task=message,
        by=by,
        by_proven=by_proven,
        agent=agent or past.awaited,
        workspace=workspace,
        idle_limit=idle_limit,
        fork=point,
        llm=llm,
        policies=policies,
        keeps_policy=keeps_policy and agent is not None,
        brought=workspace is None and await _was_imported(threads, point),
        context=values,
        features=level_of_start(others=max(FORKS, past.level), context=values),
    )
    if found := await _existing(threads, name, run_input, agent):
        return found
    words = f"Fork of {thread} at event {point.position}"
    shown = details(
        f"{words}\n\n{message}" if isinstance(message, str) else words,
        agent=agent,
        thread=name,
        workspace=workspace,
        continued=False,
    )
    try:
        run_id = await threads.begin(name, issued(run_input), title=message or words, details=shown)
    except WorkflowAlreadyStartedError:
        if found := await _existing(threads, name, run_input, agent):
            return found
        raise _exists(name) from None
    return Forked(name, run_id, point, True)


async def fork_point(threads: Threads, thread: str, at: int | None) -> ForkPoint:
    """Return the fork point for this position: the position itself, or the end of an LLM's reply that it is part of.

    Raises:
        PositionInvalid: There is no such event, or it is the first one.
        ThreadNotFound: There is no such thread.
    """
    if at is not None and at < 1:
        raise PositionInvalid(
            f"thread {thread!r} cannot be forked at {at}: event 1 is its task; "
            f"`{CLI.command('restart', thread)}` begins again"
        )
    last: JSON | None = None
    async for event in _events(threads, thread, at or 0):
        # All events of a reply are recorded together. A run cannot continue from a reply whose calls are missing.
        if last and at is not None and not (event["type"] in _WITH_REPLY and event["at"] == last["at"]):
            break
        if last is None or at is None or (event["type"] == "tool_call_requested" and not event.get("own")):
            last = event
    if last is None or last["position"] < 1:
        raise PositionInvalid(f"thread {thread!r} has no event {at if at is not None else 1} to fork it at")
    return ForkPoint(thread=thread, position=last["position"], head=last["digest"])


async def _was_moved(threads: Threads, point: ForkPoint) -> bool:
    """Whether the thread's last event moved it to another cluster."""
    async for event in _events(threads, point.thread, point.position):
        return bool(event.get("outcome") == "moved")
    return False


async def _was_imported(threads: Threads, point: ForkPoint) -> bool:
    """Whether the events up to there were imported from a file: the thread's own, or that of the tree that it ran
    in.
    """
    async for event in _events(threads, point.thread, point.position + 1):
        if event["type"] == "run_imported":
            return True
    return await may_be_imported(threads.reader, point.thread)


class _Past(NamedTuple):
    """What the start of a fork depends on, at the event that it begins after."""

    loaded: bool
    """Whether a worker had loaded the agent."""
    awaited: str | None
    """If not, the agent that was asked for."""
    level: int
    """The highest feature level of the thread's runs. A worker of an older release would not read all of the events, so
    the fork needs one that has this level."""


async def _past_of(threads: Threads, point: ForkPoint) -> _Past:
    """Read what precedes a fork."""
    loaded, awaited, level = True, None, 0
    async for event in _events(threads, point.thread, 0, point.position + 1):
        if event["position"] > point.position:
            break
        if isinstance(features := event.get("features"), int):
            level = max(level, features)
        if event["type"] == "run_started":
            loaded, awaited = False, event.get("agent")
        if event["type"] == "agent_loaded":
            loaded, awaited = True, None
    return _Past(loaded, awaited, level)


async def _events(threads: Threads, thread: str, start: int, stop: int | None = None) -> AsyncIterator[JSON]:
    """Yield the durably recorded events, at least up to `stop`; from the permanent record if it has the first one."""
    record = threads.reader.record
    if start and record and await record.length(thread) > start:
        async for page in record.pages(thread, start, stop):
            for line in page:
                yield json.loads(line)
        return
    async for line in threads.reader.lines(thread, start, found=None, note=None, use_worker=False):
        yield json.loads(line)


async def _before_last_message(threads: Threads, thread: str, at: int | None) -> int:
    """Return the position before a person's last message up to `at`.

    Raises:
        PositionInvalid: There is no such message, or it is the task.
    """
    found = 0
    async for event in _events(threads, thread, 0):
        if at is not None and event["position"] > at:
            break
        if event["type"] == "user_message_received":
            found = event["position"]
    if found <= 1:
        raise PositionInvalid(
            f"thread {thread!r} has no message but its task up to there: "
            f"`{CLI.command('restart', thread)}` with --task begins with another task"
        )
    return found - 1


async def _existing(threads: Threads, name: str, start: RunInput, agent: str | None) -> Forked | None:
    """Return the fork of that id, if it is the same: at the same event, with the same message, LLM and policies, and
    the requested agent. None if there is none.

    A start that ended before it recorded anything can be repeated.

    Raises:
        ThreadExists: There is another thread of that id.
    """
    try:
        found = await threads.reader.find(name)
    except ThreadNotFound:
        return None
    point, message = start.fork, start.task
    assert point is not None
    same, recorded = False, False
    try:
        lines = threads.reader.lines(name, point.position + 1, found=found, note=None, use_worker=False)
        begun: RunStarted | None = None
        async for line in lines:
            if not recorded:
                recorded, same = True, fork_of(line) == point
                if not same:
                    break
            event = decode_event(line)
            if isinstance(event, RunForked) and not _matches_start(event, start):
                same = False
                break
            if isinstance(event, RunStarted):
                begun, same = event, agent in (None, event.agent) and event.context == start.context and not message
            elif begun:
                if isinstance(event, UserMessageReceived) and event.task:
                    same = agent in (None, begun.agent) and event.content == message
                    same = same and begun.context == start.context
                break
        if not recorded and found:
            existing = (await threads.reader.history(found)).run_input
            same = (existing.fork, existing.task) == (point, message) and agent in (None, existing.agent)
            same = same and (existing.llm, existing.policies) == (start.llm, start.policies)
            same = same and existing.context == start.context
            if same and found.status in ENDED:
                return None
    except (EventsMissing, HistoryUnreadable):
        raise _exists(name) from None
    if not same:
        raise _exists(name)
    return Forked(name, (found.run_id or "") if found else "", point, False)


def _matches_start(forked: RunForked, start: RunInput) -> bool:
    """Whether a fork has the LLM and the policies that a start requests; a kept policy comes before them."""
    kept = forked.policies[:1] if start.keeps_policy else ()
    return forked.llm == start.llm and forked.policies in (start.policies, (*kept, *start.policies))


def _exists(thread: str) -> ThreadExists:
    return ThreadExists(f"thread {thread!r} exists, and is not this fork; choose another id with --id")


def fork_view(forked: Forked) -> Mapping[str, Any]:
    """Return a fork as JSON."""
    return {
        "thread": forked.thread,
        "run_id": forked.run_id,
        "forked_from": forked.point.thread,
        "position": forked.point.position,
        "head": forked.point.head,
        "new": forked.new,
    }
