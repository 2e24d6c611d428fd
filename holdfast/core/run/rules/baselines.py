"""An approval is good for the world as it was when people were asked: baselines, and how they are compared.

1. When requests open in a step, the agent's `verify` tools run once: their findings are the step's baseline. An agent
   without such tools has none, and nothing here happens.
2. When they run again after a long pause, their findings are compared with the baseline, by status and content. If
   nothing differs, approved calls start. If anything differs, every call that awaits approval, or was approved and has
   not started, is asked about again, and earlier votes no longer count. A tool that failed counts as different.
3. Calls that the policy allows are not affected. Neither are calls that a remembered rule allows: people said that it
   holds from now on. But a rule that was made by an approval which lapses, lapses with it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.base.text import one_line
from holdfast.core.log import events as ev
from holdfast.core.run.rules.approval_requests import ask_again
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.freshness import FindingDigest
from holdfast.core.run.state.state import RunState

WHY_CHARS = 1_000
"""Characters of the reason that says what has changed."""


def baseline_due(state: RunState) -> bool:
    """Return whether a call awaits approval, and the `verify` tools have not run for it yet."""
    asked = any(call.phase == "awaiting_approval" for call in state.calls.current)
    return asked and not state.freshness.baseline and state.spec is not None and bool(state.spec.verify)


def on_findings(
    state: RunState, findings: tuple[ev.Finding, ...], *, baseline: bool, at: datetime
) -> list[ev.AgentEvent]:
    """Return the events that follow from what `verify` tools found.

    Args:
        state: The state before.
        findings: One for each tool.
        baseline: They ran because requests have opened; else because of a long wait.
        at: Now, for requests that open again.
    """
    stale = state.stale_for(at)
    if baseline and not stale:
        return [ev.BaselineRecorded(findings=findings)]
    # After a long wait, this is not the world as it was when people were asked.
    verified = ev.StateVerified(paused_seconds=stale, findings=findings)
    found = tuple(map(FindingDigest.of, findings))
    changed = changes(state.freshness.baseline, found)
    return [verified, *_asked_again(state, changed, at=at)] if changed else [verified]


def changes(before: Sequence[FindingDigest], now: Sequence[FindingDigest]) -> list[str]:
    """Return what differs, tool by tool, as sentences; empty if nothing does."""
    if not before:
        return ["nothing was looked up when people were asked"]
    then, found_changes = {found.tool: found for found in before}, []
    for found in now:
        old = then.get(found.tool)
        if not found.ok:
            found_changes.append(f"{found.tool} could not be looked up ({found.head!r})")
        elif old is None or not old.ok:
            found_changes.append(f"{found.tool} could not be looked up when people were asked, and is {found.head!r}")
        elif old.digest != found.digest and old.head != found.head:
            found_changes.append(f"{found.tool} was {old.head!r}, and is {found.head!r}")
        elif old.digest != found.digest:
            found_changes.append(f"{found.tool} begins as before ({found.head!r}), and differs later")
    return found_changes


def _asked_again(state: RunState, changed: list[str], *, at: datetime) -> list[ev.AgentEvent]:
    """Ask again about every call that awaits approval, or was approved and has not started."""
    events: list[ev.AgentEvent] = []
    opened = 0
    for call in state.calls.current:
        request = state.authority.request(call.request or "")
        votable = request and (state.freshness.baseline or request.votes)
        waits = call.phase == "awaiting_approval" and votable
        if not waits and not (call.phase == "allowed" and call.grant and not call.undo):
            continue
        anew = ask_again(state, call, at=at, ahead=opened, reason=partial(_reason, call, changed))
        opened += any(isinstance(event, ev.ApprovalRequested) for event in anew)
        events += anew
    return events


def _reason(call: CallState, changed: list[str], request: ApprovalRequest | None) -> str:
    before = f"request {request.id} was open" if request else f"request {call.grant} was decided on"
    return one_line(f"the world has changed while {before}: {'; '.join(changed)}", WHY_CHARS)
