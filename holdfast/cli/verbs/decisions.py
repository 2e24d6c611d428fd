"""Verbs for people's decisions: approve, deny, respond, reconcile, delegate-authority, revoke, lift."""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.exits import OK, REFUSED
from holdfast.cli.options import By, Digest, Key, Reason, Request, Thread, Verbs, read_content
from holdfast.cli.session import Session
from holdfast.cli.text import visible
from holdfast.config.programs import CLI

if TYPE_CHECKING:
    from holdfast.client.sending import UpdateResult
    from holdfast.client.threads import JSON, Threads

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

DIGEST_CHARS = 64
"""The length of a full digest; the commands that `pending` prints have only a prefix."""

verbs = Verbs()


@verbs.verb(
    "approve rel-1.2 1    # shows the call, and asks",
    "approve rel-1.2 1 --digest 5f0c2d9a1b7e4c38    # the digest that `pending` prints",
    'approve rel-1.2 1 --by alice --reason "checked the notes" --key ~/.holdfast/alice.key',
    """approve rel-1.2 1 --edit '{"version": "1.2.1"}'""",
    "approve rel-1.2 1 --remember    # and the same call from now on, in this thread",
    'approve rel-1.2 1 --say "Good. Put the date into the next notes."',
)
async def approve(
    session: Session,
    thread: Thread,
    request: Request,
    by: By = None,
    reason: Reason = "",
    edit: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run with these arguments, in place of the LLM's.")
    ] = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="Allow the same call from now on, in this thread.")
    ] = False,
    feedback: Annotated[
        str, typer.Option("--say", metavar="TEXT", help="Feedback; the agent reads it with the call's result.")
    ] = "",
    digest: Digest = None,
    key: Key = None,
    yes: Yes = False,
) -> int:
    """Let a tool call run."""
    payload: dict[str, Any] = {"decision": "approve", "request": request, "by": by, "reason": reason, "digest": digest}
    if edit is not None:
        payload["arguments"] = _read_arguments(edit)
    if remember:
        payload["remember"] = True
    if feedback.strip():
        payload["say"] = feedback
    return await _decide(session, thread, payload, key=key, yes=yes)


@verbs.verb('deny rel-1.2 1 --reason "not on a Friday"')
async def deny(
    session: Session,
    thread: Thread,
    request: Request,
    by: By = None,
    reason: Reason = "",
    digest: Digest = None,
    key: Key = None,
) -> int:
    """Refuse a tool call; the agent sees the reason."""
    payload = {"decision": "deny", "request": request, "by": by, "reason": reason, "digest": digest}
    return await _decide(session, thread, payload, key=key)


@verbs.verb('respond rel-1.2 1 "It is published already, as 1.2.0"')
async def respond(
    session: Session,
    thread: Thread,
    request: Request,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer for the agent.")],
    by: By = None,
    reason: Reason = "",
    digest: Digest = None,
    key: Key = None,
) -> int:
    """Answer in a tool's place; the call does not run."""
    payload = {"decision": "respond", "request": request, "by": by, "reason": reason, "digest": digest}
    return await _decide(session, thread, {**payload, "result": text}, key=key)


@verbs.verb(
    'reconcile rel-1.2 2 --happened --result "published as 1.2"',
    "reconcile rel-1.2 2 --absent",
    "reconcile rel-1.2 2 --undo",
    'reconcile rel-1.2 2 --abandon --reason "the registry is gone"',
)
async def reconcile(
    session: Session,
    thread: Thread,
    request: Request,
    happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
    absent: Annotated[bool, typer.Option("--absent", help="It did not: run it.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo what it may have done.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Leave the outcome unknown and continue.")] = False,
    result: Annotated[str | None, typer.Option(metavar="TEXT", help="With --happened: the call's result.")] = None,
    by: By = None,
    reason: Reason = "",
    digest: Digest = None,
    key: Key = None,
    yes: Yes = False,
) -> int:
    """Resolve a call whose outcome is unknown."""
    choices = {"happened": happened, "absent": absent, "undo": undo, "abandon": abandon}
    chosen = [decision for decision, flag in choices.items() if flag]
    if len(chosen) != 1:
        raise typer.BadParameter("say one of --happened, --absent, --undo and --abandon")
    if result is not None and not happened:
        raise typer.BadParameter("--result belongs to --happened")
    payload = {"decision": chosen[0], "request": request, "by": by, "reason": reason, "digest": digest}
    return await _decide(session, thread, {**payload, "result": result}, key=key, yes=yes)


@verbs.verb(
    "delegate-authority rel-1.2 --to bob --for 1d",
    "delegate-authority rel-1.2 --to bob --for 4h --by alice --key alice.key",
)
async def delegate_authority(
    session: Session,
    thread: Thread,
    to: Annotated[str, typer.Option(metavar="NAME", help="Another approver.")],
    span: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90 (seconds), 15m, 4h, 7d or 3w.")],
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Delegate your approval authority within a thread."""
    from holdfast.core.base.durations import read_seconds

    try:
        seconds = read_seconds(span)
    except ValueError as error:
        raise typer.BadParameter(f"--for: {error}") from None
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    private, payload = session.private_key(key), _complete(session, by=by, reason=reason, to=to, until=until)
    threads = await session.connect(thread)
    from holdfast.client.interventions import intervene

    decided = await intervene(threads, thread, "delegate_authority", payload, private=private)
    return _report(session, f"{payload['by']}'s approval authority in {thread}, delegated to {to}", decided)


@verbs.verb("revoke rel-1.2 --remembered 1", "revoke rel-1.2 --delegated-to bob --by alice")
async def revoke(
    session: Session,
    thread: Thread,
    remembered: Annotated[str | None, typer.Option(metavar="ID", help="A remembered rule, as `show` lists it.")] = None,
    delegated_to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The approver to whom you delegated your authority.")
    ] = None,
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Revoke a remembered rule, or a delegation."""
    if (remembered is None) == (delegated_to is None):
        raise typer.BadParameter("say one of --remembered and --delegated-to")
    private = session.private_key(key)
    payload = _complete(session, by=by, reason=reason, delegated_to=delegated_to, remembered=remembered)
    threads = await session.connect(thread)
    from holdfast.client.interventions import intervene

    what = f"remembered rule {remembered}" if remembered is not None else f"delegation to {delegated_to}"
    decided = await intervene(threads, thread, "revoke", payload, private=private)
    return _report(session, f"{what} in {thread}", decided)


@verbs.verb(
    'lift rel-1.2 3 --reason "the invoice is unlocked"',
    "lift rel-1.2 3 --by alice --key alice.key",
    "lift rel-1.2 4.1    # the first constraint from the sub-agent of call 4",
    'lift rel-1.2 3 --say "The invoice is unlocked; try again."    # also continues a closed thread',
    "lift rel-1.2-fork 0    # effects of a fork no longer ask first",
)
async def lift(
    session: Session,
    thread: Thread,
    constraint: Annotated[str, typer.Argument(metavar="CONSTRAINT", help="As `show` names it: `3`, or `4.1`.")],
    say: Annotated[
        str | None,
        typer.Option(metavar="MESSAGE", help="A message for the agent after that; it continues a closed thread."),
    ] = None,
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Remove a constraint. The policy then judges the calls that it rejected like any other call.

    Number 0 lets the effects of a fork run as the policy says.
    """
    from holdfast.core.base.constraint_names import constraint_number

    if not isinstance(number := constraint_number(constraint), int):
        raise typer.BadParameter(f"{constraint!r} is no constraint: `show` names them, such as 3 or 4.1")
    private, message = session.private_key(key), None if say is None else read_content(say, None, name="--say")
    threads = await session.connect(thread)
    from holdfast.client.lifts import lift as send

    name = session.person(by)
    decided = await send(threads, thread, number, by=name, reason=reason, message=message, private=private)
    return _report(session, f"constraint {constraint} of {thread}", decided)


async def _decide(session: Session, thread: str, payload: "JSON", *, key: Path | None, yes: bool = False) -> int:
    """Decide a request: approve, deny, respond, or reconcile."""
    private, payload = session.private_key(key), _complete(session, **payload)
    threads = await session.connect(thread)
    from holdfast.client.interventions import intervene

    bound = await _bind_to_request(session, threads, thread, payload, private, yes=yes)
    if bound is None:
        session.output.note("Nothing was sent.")
        return OK
    decided = await intervene(threads, thread, "decide", bound, private=private)
    return _report(session, f"request {payload['request']} of {thread}", decided)


def _complete(session: Session, **payload: Any) -> "JSON":
    """Return the payload with the sender's name, and without unset fields."""
    fields = {name: value for name, value in payload.items() if value is not None}
    return {**fields, "by": session.person(payload["by"])}


async def _bind_to_request(
    session: Session, threads: "Threads", thread: str, payload: "JSON", private: str | None, *, yes: bool
) -> "JSON | None":
    """Return the decision, bound to the digest of its open request; None if the person does not confirm it.

    A digest on the command line means that the person has seen the request. Otherwise the request is shown, and a
    person at a terminal is asked to confirm: a decision, and its signature, cover exactly the request as shown.
    """
    from holdfast.cli.screens.request_screens import deciding_screen
    from holdfast.core.authority.signatures import public_key
    from holdfast.core.run.views.web_ui import HARMLESS
    from holdfast.encryption.signing_keys import check_shown

    digest = payload.get("digest", "")
    if len(digest) >= DIGEST_CHARS:
        return payload
    requests = await threads.pending(thread, note=session.note_silence)
    request = next((each for each in requests if each["request"] == payload["request"]), None)
    if request is None or not request["digest"].startswith(digest):
        return payload  # the run rejects it with the reason
    if private:
        check_shown(request)
    bound = {**payload, "digest": request["digest"]}
    if not digest:
        screen = deciding_screen(request, bound, public_key(private) if private else "")
        asking = not session.output.as_json and sys.stdin is not None and sys.stdin.isatty()
        if not session.output.as_json:
            session.output.note(screen)
        if asking and not yes and payload["decision"] not in HARMLESS:
            reply = session.output.err.input("Is this what you decide? [y/N] ", markup=False, emoji=False)
            return bound if reply.strip().lower() in ("y", "yes") else None
    return bound


def _report(session: Session, what: str, decided: "UpdateResult") -> int:
    """Print the outcome of a decision; return the exit code."""
    from rich.text import Text

    explanation = decided.explanation or decided.outcome
    result: Mapping[str, str] = {"outcome": decided.outcome, "explanation": decided.explanation}
    session.output.result(result, Text(visible(f"{what}: {explanation}")) if decided.counts else None)
    if not decided.counts:
        outcome = decided.outcome.replace("_", " ")
        session.output.note(f"{CLI.name}: {visible(what)}: {outcome}: {visible(explanation)}")
    return OK if decided.counts else REFUSED


def _read_arguments(text: str) -> dict[str, Any]:
    from holdfast.cli.screens.edited_arguments import read_arguments

    try:
        return read_arguments(text)
    except ValueError as error:
        raise typer.BadParameter(f"--edit: {error}") from None
