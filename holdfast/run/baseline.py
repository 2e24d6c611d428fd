"""What an approval is good for: the world as it stood when people were asked.

1. When requests open in a step, the agent's `verify` tools look once: that is the step's baseline. Without such tools
   there is none, and nothing here happens.
2. When the agent looks again after a long pause, what it finds is compared with the baseline, by status and content.
   The same: what was approved starts. Different: every call that people are asked about, or have let run, is asked
   about again, and what they said before counts for nothing. A tool that could not look counts as different.
3. What the policy allows without asking is not compared. Neither is what a remembered rule lets run: people have said
   that it holds from now on. But a rule that was made by an approval which lapses, lapses with it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from holdfast.authority.approvals import ApprovalRequest
from holdfast.base.text import one_line
from holdfast.log.events import AgentEvent, ApprovalRequested, BaselineRecorded, Finding, StateVerified
from holdfast.run.decisions import ask_again
from holdfast.run.state import CallState, Found, RunState

WHY_CHARS = 1_000
"""What people are told of what has changed."""


def baseline_due(state: RunState) -> bool:
    """Whether people are asked about a call, and the agent has not looked yet at what they are asked for."""
    asked = any(call.phase == "awaiting_approval" for call in state.calls)
    return asked and not state.baseline and state.spec is not None and bool(state.spec.verify)


def on_findings(state: RunState, findings: tuple[Finding, ...], *, baseline: bool, at: datetime) -> list[AgentEvent]:
    """The events that what `verify` tools found leads to.

    Args:
        state: The state before.
        findings: One of each tool.
        baseline: They looked because requests have opened; else because of a long pause.
        at: Now, for requests that open again.
    """
    paused = state.paused(at)
    if baseline and not paused:
        return [BaselineRecorded(findings=findings)]
    # Found so late, it is not what stood when people were asked.
    verified = StateVerified(paused_seconds=paused, findings=findings)
    found = tuple(map(Found.of, findings))
    changed = changes(state.baseline, found)
    return [verified, *_asked_again(state, changed, at=at)] if changed else [verified]


def changes(before: Sequence[Found], now: Sequence[Found]) -> list[str]:
    """What differs, tool by tool, in words; empty for nothing."""
    if not before:
        return ["what stood when it was asked was not looked up"]
    then, told = {found.tool: found for found in before}, []
    for found in now:
        old = then.get(found.tool)
        if not found.ok:
            told.append(f"{found.tool} could not be looked up ({found.head!r})")
        elif old is None or not old.ok:
            told.append(f"{found.tool} could not be looked up when it was asked, and is {found.head!r}")
        elif old.digest != found.digest and old.head != found.head:
            told.append(f"{found.tool} was {old.head!r}, and is {found.head!r}")
        elif old.digest != found.digest:
            told.append(f"{found.tool} differs after {found.head!r}")
    return told


def _asked_again(state: RunState, changed: list[str], *, at: datetime) -> list[AgentEvent]:
    """Every call that waits for people, or runs by their leave, is asked about anew."""
    events: list[AgentEvent] = []
    questions = 0
    for call in state.calls:
        request = state.request(call.request or "")
        waits = call.phase == "awaiting_approval" and request and (state.baseline or request.votes)
        if not waits and not (call.phase == "allowed" and call.grant and not call.undo):
            continue
        anew = ask_again(state, call, at=at, ahead=questions, changed=partial(_why, call, changed))
        questions += any(isinstance(event, ApprovalRequested) for event in anew)
        events += anew
    return events


def _why(call: CallState, changed: list[str], request: ApprovalRequest | None) -> str:
    before = f"request {request.id} was open" if request else f"request {call.grant} was decided on"
    return one_line(f"the world has changed while {before}: {'; '.join(changed)}", WHY_CHARS)
