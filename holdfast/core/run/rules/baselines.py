"""Baselines: an approval holds for the state of the world in which people were asked.

1. When requests open in a step, the agent's `verify` tools run once: their findings are the step's baseline. An agent
   without such tools has none, and this module changes nothing.
2. When the tools run again after a long pause, their findings are compared with the baseline, by status and content. If
   nothing differs, approved calls start. If anything differs, people are asked again about every call that awaits
   approval, or was approved and has not started, and earlier votes no longer count. A failed tool counts as different.
3. Calls that the policy allows are not affected, nor are calls that a remembered rule allows: people approved those
   from then on. But a rule lapses together with the approval that made it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.base.text import one_line
from holdfast.core.log import events as ev
from holdfast.core.run.rules.approval_requests import ask_again, asks
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.freshness import FindingDigest
from holdfast.core.run.state.state import RunState

WHY_CHARS = 1_000
"""Characters of the reason that lists the changes."""


def baseline_due(state: RunState) -> bool:
    """Return whether a call awaits approval, and the `verify` tools have not run for it yet."""
    asked = any(call.phase == "awaiting_approval" for call in state.calls.current)
    return asked and not state.freshness.baseline and state.spec is not None and bool(state.spec.verify)


def on_findings(
    state: RunState, findings: tuple[ev.Finding, ...], *, baseline: bool, at: datetime
) -> list[ev.AgentEvent]:
    """Return the events that follow from the findings of the `verify` tools.

    Args:
        state: The state before.
        findings: One for each tool.
        baseline: The tools ran because requests have opened; otherwise because of a long wait.
        at: Now, for requests that open again.
    """
    stale = state.stale_for(at)
    if baseline and not stale:
        return [ev.BaselineRecorded(findings=findings)]
    # After a long wait, the findings no longer describe the world in which people were asked.
    verified = ev.StateVerified(paused_seconds=stale, findings=findings)
    changed = changes(state.freshness.baseline, tuple(map(FindingDigest.of, findings)))
    return [verified, *_ask_again(state, changed, at=at)] if changed else [verified]


def changes(before: Sequence[FindingDigest], now: Sequence[FindingDigest]) -> list[str]:
    """Return the differences, one sentence for each tool; empty if there are none."""
    if not before:
        return ["nothing was looked up when people were asked"]
    old_findings, differences = {finding.tool: finding for finding in before}, []
    for new in now:
        old = old_findings.get(new.tool)
        if not new.ok:
            differences.append(f"{new.tool} could not be looked up ({new.head!r})")
        elif old is None or not old.ok:
            differences.append(f"{new.tool} could not be looked up when people were asked, and is {new.head!r}")
        elif old.digest != new.digest and old.head != new.head:
            differences.append(f"{new.tool} was {old.head!r}, and is {new.head!r}")
        elif old.digest != new.digest:
            differences.append(f"{new.tool} begins as before ({new.head!r}), and differs later")
    return differences


def _ask_again(state: RunState, changed: list[str], *, at: datetime) -> list[ev.AgentEvent]:
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
        opened += any(map(asks, anew))
        events += anew
    return events


def _reason(call: CallState, changed: list[str], request: ApprovalRequest | None) -> str:
    before = f"request {request.id} was open" if request else f"request {call.grant} was decided on"
    return one_line(f"the world has changed while {before}: {'; '.join(changed)}", WHY_CHARS)
