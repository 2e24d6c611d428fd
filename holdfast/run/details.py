"""A run in Temporal's Web UI: one-line summaries, and the current details in Markdown."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.statements import DecisionKind, parsed
from holdfast.base.text import code, one_line, plain, quoted
from holdfast.llm.blocks import ToolCall
from holdfast.run.state import Blocked, RunState

SHOWN_REQUESTS = 10
"""Open requests that are shown in full."""

SHOWN_CHARS = 4_000
"""Characters of a request's arguments. Longer ones are cut, and then the page offers no decision that lets them run."""

HARMLESS: frozenset[DecisionKind] = frozenset({"deny", "respond", "happened", "abandon"})
"""Decisions after which nothing runs: a person may take them without having seen all of a call."""

WHO = '```json\n{"by": "your name"}\n```'
"""The payload of a signal that needs nothing but a name."""

_SIGNALS: dict[DecisionKind, str] = {
    "approve": "approve",
    "deny": "deny",
    "respond": "respond",
    "happened": "reconcile",
    "absent": "reconcile",
    "undo": "reconcile",
    "abandon": "reconcile",
}


def describe_call(call: ToolCall) -> str:
    """Return a tool call as the Web UI lists it: `read_file(path="CHANGELOG.md")`."""
    arguments = parsed(call.arguments)
    if not isinstance(arguments, dict):
        return one_line(f"{call.name}({call.arguments})")
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(f"{call.name}({shown})")


def signal_json(request: ApprovalRequest, decision: DecisionKind) -> tuple[str, str]:
    """Return the signal's name and the exact JSON that make this decision."""
    payload = {"request": request.id, "by": "your name", "reason": "why"}
    if request.kind == "reconcile":
        payload = {"decision": decision, **payload}
    if decision == "respond":
        payload = {**payload, "result": "what the agent is to read"}
    return _SIGNALS[decision], json.dumps(payload)


def current_details(state: RunState) -> str:
    """Return the run in Markdown: task, step, and each open request with the signals that answer it."""
    agent = state.spec.name if state.spec else "loading…"
    lines = [
        f"**{state.status.replace('_', ' ')}** · agent `{agent}` · step {state.steps.count}",
        "",
        quoted(state.task),
    ]
    if state.blocked:
        lines += blocked_details(state.blocked)
    if state.warning:
        lines += ["", "### Warning", "", quoted(state.warning)]
    for request in state.authority.requests[:SHOWN_REQUESTS]:
        lines += ["", *_request(state, request)]
    if (more := len(state.authority.requests) - SHOWN_REQUESTS) > 0:
        lines += ["", f"… and {more} more requests: `holdfast pending {state.thread}`"]
    if running := [call.call for call in state.calls.current if call.phase == "started"]:
        shown = [code(describe_call(call)) for call in running]
        lines += ["", "### Running", "", *(f"- `{call}`" for call in shown)]
    if state.outcome and state.result:
        lines += ["", "### Result", "", state.result]
    return "\n".join(lines)


def _request(state: RunState, request: ApprovalRequest) -> list[str]:
    question = "may this run?" if request.kind == "approval" else "did this happen?"
    arguments = parsed(request.arguments)
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, indent=2, ensure_ascii=False)
    lines = [
        f"### Request {request.id}: {question}",
        "",
        f"`{request.tool}` ({plain(request.why, 1_000)})",
        "",
    ]
    lines += [f"```json\n{shown[:SHOWN_CHARS]}\n```", ""]
    answers = request.answers
    if len(shown) > SHOWN_CHARS:
        answers = tuple(answer for answer in answers if answer in HARMLESS)
        lines += [f"**Cut: {SHOWN_CHARS:,} of {len(shown):,} characters.** Digest of all: `{request.digest}`.", ""]
        lines += [f"To let it run, read the rest first: `{code(f'holdfast pending {state.thread}')}`", ""]
    if terms := describe_terms(request):
        lines += [terms, ""]
    if state.spec and state.spec.policy.signatures == "required":
        words = ", ".join(request.answers)
        decide = code(f"holdfast pending {state.thread}")
        return [*lines, f"Only a signed decision counts ({words}): `{decide}` shows the commands.", ""]
    for decision in answers:
        signal, payload = signal_json(request, decision)
        lines += [f"To {decision}, send the signal `{signal}` with", "", f"```json\n{payload}\n```", ""]
    return lines


def describe_terms(request: ApprovalRequest) -> str:
    """Return who may decide, how many have decided, and until when, in a line; empty where anybody may, at any time."""
    terms, parts = request.terms, []
    if request.who:
        parts.append(f"decided by {', '.join(request.who)}")
    if terms.quorum > 1:
        parts.append(votes_words([vote.view() for vote in request.votes], terms.quorum))
    if request.expires_at:
        parts.append(
            f"{'denied' if terms.on_expiry == 'deny' else 'approved'} at {request.expires_at:%Y-%m-%d %H:%M} UTC"
        )
    text = one_line("; ".join(parts), 300)
    return text[:1].upper() + text[1:]


def votes_words(votes: Sequence[Mapping[str, Any]], quorum: int) -> str:
    """Return how many gave which answer, and who: `1 of 2 have approved (alice)`.

    Args:
        votes: As `ApprovalRequest.view` has them.
        quorum: How many have to give the same answer.
    """
    answers: dict[tuple[str, str], list[str]] = {}
    for vote in votes:
        instead = f"{vote['by']} for {vote['for']}" if vote.get("for") else str(vote["by"])
        answers.setdefault((vote["decision"], vote.get("result", "")), []).append(instead)
    counts = []
    for (decision, result), people in answers.items():
        said = "have approved" if decision == "approve" else f"say {decision}"
        words = f': "{one_line(result, 80)}"' if result else ""
        counts.append(f"{len(people)} of {quorum} {said}{words} ({', '.join(people)})")
    return "; ".join(counts) or f"0 of {quorum} have answered"


def blocked_details(blocked: Blocked) -> list[str]:
    """Return why a run or a loop is blocked, and the signal that unblocks it."""
    lines = ["", f"### Blocked: {blocked.cause}", "", quoted(blocked.message), ""]
    if blocked.after:
        lines += [plain(f"The run gave up {blocked.after}"), ""]
    return [*lines, "Fix the cause, then send the signal `retry` with", "", WHO]
