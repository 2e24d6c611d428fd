"""Events of an open run that adopts another policy."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.hours import ZoneOffsets
from holdfast.core.authority.interventions import PolicyAdoption
from holdfast.core.authority.policy import Policy
from holdfast.core.log.events.base import Event, Stated


class PolicyChangeRequested(Stated):
    """A person had the run adopt another policy, which a worker has to have. Recorded from feature level 2 on.

    Followed by: `policy_changed` or `policy_change_failed`, as soon as no tool runs, and no outcome of a call is open.
    Correlate: `policy` is the digest of the policy in the `policy_changed`.
    """

    STATEMENT = PolicyAdoption

    type: Literal["policy_change_requested"] = "policy_change_requested"
    policy: str
    """The digest of the policy."""
    by: str
    reason: str = ""
    id: str = ""
    until: datetime | None = None


class PolicyChanged(Event):
    """The run adopted a policy in place of that of its agent: it judges all calls from here on. Remembered rules,
    delegations and approvals of calls that have not started end. Recorded from feature level 2 on.

    Followed by: for each call that has not started, `tool_call_finished` if it is denied now, or `approval_requested`
    if it requires approval now, or did before; `tool_call_finished` for each call that waits for the event
    `policy_changed`.
    Correlate: `spec_hash` is part of the digest of every later `approval_requested`.
    """

    type: Literal["policy_changed"] = "policy_changed"
    policy: Policy
    spec_hash: str
    """Digest of the agent with this policy."""
    zones: tuple[ZoneOffsets, ...] = ()
    """The offsets of the time zones of the policies' hours."""


class PolicyChangeFailed(Event):
    """No worker had the policy that the run was to adopt: the run keeps its own. Recorded from feature level 2 on.

    Followed by: no particular event. Correlate: it ends the last `policy_change_requested`.
    """

    type: Literal["policy_change_failed"] = "policy_change_failed"
    policy: str
    """The digest of the policy that was asked for."""
    problem: str
