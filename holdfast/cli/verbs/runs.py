"""Verbs that change a run: say, refine, retry, pause, resume, compact, cancel."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.exits import OK, REFUSED
from holdfast.cli.options import Blocks, By, Key, Reason, Thread, Verbs, read_content
from holdfast.cli.reports import report_outcome
from holdfast.cli.session import Session
from holdfast.cli.text import visible
from holdfast.cli.verbs.budgets import MORE, read_budget
from holdfast.config.programs import CLI

if TYPE_CHECKING:
    from holdfast.client.sending import UpdateResult
    from holdfast.client.threads import JSON

verbs = Verbs()


@verbs.verb(
    'say rel-1.2 "Also update the notes"',
    'say rel-1.2 "Stop, that is the wrong branch" --when-busy interrupt',
    "say rel-1.2 - < review.md",
    "say rel-1.2 --content picture.json",
)
async def say(
    session: Session,
    thread: Thread,
    message: Annotated[str | None, typer.Argument(metavar="MESSAGE", help="The message; - reads stdin.")] = None,
    when_busy: Annotated[
        Literal["queue", "interrupt", "reject"],
        typer.Option(help="While the run is busy: wait for the end of the step, interrupt the LLM call, or refuse."),
    ] = "queue",
    by: By = None,
    blocks: Blocks = None,
    key: Key = None,
) -> int:
    """Send a message to a run, or continue a closed thread."""
    content = read_content(message, blocks, name="MESSAGE")
    private, name = session.private_key(key), session.person(by)
    threads = await session.connect(thread)
    from holdfast.client.messages import say as send

    sent = await send(threads, thread, content, by=name, when_busy=when_busy, private=private)
    return _report_message(session, thread, sent)


def _report_message(session: Session, thread: str, sent: "UpdateResult") -> int:
    """Print the outcome of a message or a refinement; return the exit code."""
    from rich.text import Text

    from holdfast.client.messages import MessageResult

    result: JSON = {"outcome": sent.outcome, "explanation": sent.explanation}
    if isinstance(sent, MessageResult) and sent.run_id:
        result |= {"run_id": sent.run_id}
    summary = f"{visible(thread)}: {sent.outcome.replace('_', ' ')}: {visible(sent.explanation)}"
    session.output.result(result, Text(summary) if sent.counts else None)
    if not sent.counts:
        session.output.note(f"{CLI.name}: {summary}")
    return OK if sent.counts else REFUSED


@verbs.verb(
    'refine rel-1.2 --narrow "Only the notes; publish nothing"',
    'refine rel-1.2 --rescope "Publish 1.3 instead"',
    'refine rel-1.2 --correct "The branch is called release-1.2" --when-busy interrupt',
    "refine rel-1.2 --rescope - --key alice.key < task.md",
    'refine rel-1.2 --reclassify "needs an auditor" --agent auditor --trust web --budget usd=1',
)
async def refine(
    session: Session,
    thread: Thread,
    narrow: Annotated[str | None, typer.Option(metavar="TEXT", help="Do less than before; - reads stdin.")] = None,
    rescope: Annotated[str | None, typer.Option(metavar="TEXT", help="Do this instead; - reads stdin.")] = None,
    correct: Annotated[
        str | None, typer.Option(metavar="TEXT", help="This overrides a mistake in the task; - reads stdin.")
    ] = None,
    reclassify: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Change --agent, --trust or --budget from the end of the step on."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --reclassify: the agent that continues the run.")
    ] = None,
    trust: Annotated[
        Literal["agent", "tool", "web"] | None, typer.Option(help="With --reclassify: the lower trust level.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="LIMITS", help=f"With --reclassify: the lower limits. {MORE}")
    ] = None,
    when_busy: Annotated[
        Literal["queue", "interrupt"],
        typer.Option(help="While the run is busy: wait for the end of the step, or interrupt the LLM call."),
    ] = "queue",
    by: By = None,
    key: Key = None,
) -> int:
    """Refine the task of a run: narrow it, replace it, correct it, or reclassify the run, without a restart.

    The agent reads who did it, and how. Requests, approvals and the policy stay as they are. --reclassify changes the
    run itself: another agent (the previous policy still judges its calls, too), a lower trust level, or a smaller
    budget.
    """
    options = {"narrow": narrow, "rescope": rescope, "correct": correct, "reclassify": reclassify}
    chosen = [(kind, text) for kind, text in options.items() if text is not None]
    if len(chosen) != 1:
        raise typer.BadParameter("say one of --narrow, --rescope, --correct and --reclassify")
    (kind, typed), private, name = chosen[0], session.private_key(key), session.person(by)
    given = {"agent": agent, "trust": trust, "budget": read_budget(budget) if budget else None}
    changes = {name: value for name, value in given.items() if value is not None}
    if bool(changes) is not (kind == "reclassify"):
        raise typer.BadParameter("--reclassify needs one of --agent, --trust and --budget, and they need it")
    payload: JSON = {**changes, "by": name, "reason": typed}
    if kind != "reclassify":
        text = read_content(typed, None, name=f"--{kind}")
        payload = {"kind": kind, "text": text, "by": name, "when_busy": when_busy}
    act = "reclassify" if kind == "reclassify" else "refine"
    threads = await session.connect(thread)
    from holdfast.client import interventions, loops

    if await loops.find_loop(threads, thread):
        raise typer.BadParameter("a loop has no task of its own to refine; edit the files of its workspace instead")
    sent = await interventions.intervene(threads, thread, act, payload, private=private)
    return _report_message(session, thread, sent)


@verbs.verb('retry rel-1.2 --reason "new key"')
async def retry(session: Session, thread: Thread, by: By = None, reason: Reason = "", key: Key = None) -> int:
    """Resume a blocked run or loop, once its cause is fixed."""
    name, private = session.person(by), session.private_key(key)
    threads = await session.connect(thread)
    from holdfast.client import interventions, loops

    if await loops.find_loop(threads, thread):
        return report_outcome(session, thread, await loops.steer(threads, thread, "retry", by=name, reason=reason))
    payload = {"by": name, "reason": reason}
    retried = await interventions.intervene(threads, thread, "retry", payload, private=private)
    return report_outcome(session, thread, retried)


@verbs.verb(
    'pause rel-1.2 --reason "let me look"',
    "pause rel-1.2 --until 4h",
    "pause rel-1.2 --until 2026-05-06T07:08",
    "pause loop-3f09ac",
)
async def pause(
    session: Session,
    thread: Thread,
    by: By = None,
    reason: Reason = "",
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Resume by itself: after 30s, 15m, 4h, 7d or 3w, or at 2026-05-06T07:08."),
    ] = None,
    key: Key = None,
) -> int:
    """Pause a run or a loop: work under way ends, and nothing else starts.

    Decisions and messages are recorded meanwhile, and take effect when the run resumes. Repeat it to change the reason
    and --until.
    """
    from holdfast.config.durations import read_time

    try:
        end = read_time(until, now=datetime.now(UTC)) if until else None
    except ValueError as error:
        raise typer.BadParameter(f"--until: {error}") from None
    name, private = session.person(by), session.private_key(key)
    threads = await session.connect(thread)
    from holdfast.client import interventions, loops

    if not await loops.find_loop(threads, thread):
        payload = {"by": name, "reason": reason} | ({"until": end.isoformat()} if end else {})
        paused = await interventions.intervene(threads, thread, "pause", payload, private=private)
    else:
        paused = await loops.steer(threads, thread, "pause", by=name, reason=reason, until=end)
    return report_outcome(session, thread, paused)


@verbs.verb("resume rel-1.2", 'resume rel-1.2 --say "Use the other branch"', "resume loop-3f09ac")
async def resume(
    session: Session,
    thread: Thread,
    by: By = None,
    reason: Reason = "",
    message: Annotated[
        str | None, typer.Option("--say", metavar="MESSAGE", help="Say this to the agent before it resumes.")
    ] = None,
    key: Key = None,
) -> int:
    """Resume a paused run or loop. A loop reads its files again."""
    name, private = session.person(by), session.private_key(key)
    content = read_content(message, None, name="--say") if message is not None else None
    threads = await session.connect(thread)
    from holdfast.client import loops, messages

    if not await loops.find_loop(threads, thread):
        resumed = await messages.resume(threads, thread, by=name, reason=reason, message=content, private=private)
    elif content is not None:
        raise typer.BadParameter("--say: a loop takes no messages; edit the files of its workspace instead")
    else:
        resumed = await loops.steer(threads, thread, "resume", by=name, reason=reason)
    return report_outcome(session, thread, resumed)


@verbs.verb('compact rel-1.2 --reason "a new topic"', "compact rel-1.2 --summary - --key alice.key < summary.md")
async def compact(
    session: Session,
    thread: Thread,
    summary: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Your own summary, in place of the LLM's; - reads stdin.")
    ] = None,
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Compact a run's context: at once while it waits for a message, else at the end of the step."""
    payload, private = {"by": session.person(by), "reason": reason}, session.private_key(key)
    if summary is not None:
        payload["summary"] = read_content(summary, None, name="--summary")
    threads = await session.connect(thread)
    from holdfast.client.interventions import intervene

    return report_outcome(session, thread, await intervene(threads, thread, "compact", payload, private=private))


@verbs.verb("cancel rel-1.2", 'cancel rel-1.2 --reason "the order was withdrawn"')
async def cancel(session: Session, thread: Thread, reason: Reason = "") -> int:
    """Stop a run, after the tools under way have stopped."""
    threads = await session.connect(thread)
    from holdfast.client import interventions

    return report_outcome(session, thread, await interventions.cancel(threads, thread, reason=reason))
