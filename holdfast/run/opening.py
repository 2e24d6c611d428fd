"""How a run of a thread opens: the events that come before everything else. Pure functions."""

from holdfast.authority.policy import Policy
from holdfast.base.names import person_name
from holdfast.llm.messages import AssistantMessage, ToolMessage, decode
from holdfast.log.event_log import EventLog
from holdfast.log.events import RunStarted, UserMessageReceived
from holdfast.run.consequences import Events, on_reopen
from holdfast.run.contracts import RunInput
from holdfast.run.features import LOOP_BUDGETS, SCHEDULED, SUBAGENTS
from holdfast.run.forking import ANSWERED, WITHIN_REPLY, forked_events, refuse_fork, refuse_policies
from holdfast.run.state import RunState
from holdfast.transcript.transcript import Transcript


def refuse_start(begin: RunInput, past: RunState) -> str:
    """Return why this start may not open another run of the thread; empty if it may: each counts once."""
    if begin.start and begin.start in past.origin.starts:
        return f"the start {begin.start} has begun a run of this thread before; say something to the thread instead"
    if past.outcome == "moved" and not begin.fork:
        return "the thread was moved to another place, and continues there: import its file to continue it here"
    return ""


def opening_events(
    begin: RunInput, past: RunState, *, agent: str | None, thread: str, run_id: str, first_run_id: str
) -> Events:
    """Return the events that open a run: what was left open by a closed one, the start, and the task.

    Args:
        begin: The run's input.
        past: Where the thread's last run ended.
        agent: The agent to load; None for the catalog's first.
        thread: The workflow id.
        run_id: Temporal's id of this run.
        first_run_id: Temporal's first execution run id.
    """
    started = RunStarted(
        thread=thread,
        run_id=run_id,
        first_run_id=first_run_id,
        sealed=begin.proven,
        start=begin.start,
        user_proven=begin.proven and begin.by_proven,
        agent=agent,
        idle_limit=begin.idle_limit,
        depth=begin.depth,
        trust=begin.trust,
        schedule=begin.schedule if begin.features >= SCHEDULED else "",
    )
    if begin.lineage and begin.features >= SUBAGENTS:
        handed = {"lineage": begin.lineage, "policies": begin.policies, "constraints": begin.constraints}
        started = started.model_copy(update=handed)
    if begin.hands_in and begin.features >= LOOP_BUDGETS:
        started = started.model_copy(update={"allowance": begin.budget})
    task = UserMessageReceived(content=begin.task, by=canonical_name(begin.by), task=True)
    if begin.fork is None:
        return [*on_reopen(past), started, task]
    forked = forked_events(
        past,
        begin.fork,
        thread=thread,
        first_run_id=first_run_id,
        by=task.by,
        level=begin.features,
        imported=begin.imported,
        llm=begin.llm,
        policies=(*_kept(begin, past), *begin.policies),
    )
    started = started.model_copy(update={"depth": past.origin.depth})
    return [*forked, started, *([task] if begin.task else [])]


def refuse_forked_start(begin: RunInput, past: RunState, transcript: Transcript, *, thread: str, log: EventLog) -> str:
    """Return why a fork may not begin with what was loaded; empty if it may, or if this start forks nothing.

    Args:
        begin: The run's input.
        past: The state that was loaded.
        transcript: The transcript that was loaded.
        thread: The workflow id.
        log: The log, after what was loaded.
    """
    if begin.fork is None:
        return ""
    if refused := refuse_fork(begin.fork, thread=thread, position=log.length, head=log.head):
        return refused
    if begin.keeps_policy and past.spec is None:  # a run's first events: a fork with another agent would have no rule
        return "no agent is loaded at that event, so its policy cannot judge the fork: fork at a later event"
    if refused := refuse_policies(past, begin.policies, kept=_kept(begin, past)):
        return refused
    messages = [decode(line) for line in transcript.messages]
    place = next((n for n, each in enumerate(reversed(messages)) if isinstance(each, AssistantMessage)), None)
    if place is None:
        return ""
    reply, results = messages[-1 - place], messages[len(messages) - place :]
    calls = len(reply.tool_calls) if isinstance(reply, AssistantMessage) else 0
    if calls > sum(isinstance(each, ToolMessage) for each in results) + len(transcript.base.open):
        return WITHIN_REPLY
    return ANSWERED if not (calls or place or begin.task or past.inbox.waiting) else ""


def _kept(begin: RunInput, past: RunState) -> tuple[Policy, ...]:
    """The policy of the original's agent, where the start says that it judges the fork's calls, too."""
    return (past.spec.policy,) if begin.keeps_policy and past.spec else ()


def canonical_name(by: str) -> str:
    """Return the one spelling of who starts the run; as it was given, where the run will fail for it."""
    try:
        return person_name(by)
    except ValueError:
        return by[:2_000]
