"""The open requests of a run, and the people who may decide them or steer the run, for the screens on which they do.

Pure, and presentation only: the run judges each statement by itself (`holdfast.core.run.rules.standings` and
`holdfast.core.run.inputs.steering`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.policy import Policy
from holdfast.core.base.canonical import parsed
from holdfast.core.run.rules.authority import (
    policies_of,
    policy_for,
    refuse_bystander,
    refuse_extender,
    signatures_required,
)
from holdfast.core.run.rules.standings import stands_for
from holdfast.core.run.state.features import CONSEQUENCES, SIGNED_STEERING
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.consequences import consequence_of

_NOBODY = "\n"
"""A name that nobody has."""


def open_requests(state: RunState) -> list[dict[str, Any]]:
    """Return the open requests as `pending` presents them, each with who `may` decide it."""
    requests = {request.id: request for request in state.authority.requests}
    return [{**view, "may": _may(state, requests[view["request"]])} for view in pending_view(state)]


def pending_view(state: RunState) -> list[dict[str, Any]]:
    """Return the open requests as `pending` presents them; a sub-agent's include the path from the root."""
    if state.outcome == "moved":
        return []  # they are open in the other cluster
    path = {"path": [*state.origin.lineage.path, state.thread]} if state.origin.lineage else {}
    return [{**request_view(state, request), **path} for request in state.authority.requests]


def request_view(state: RunState, request: ApprovalRequest) -> dict[str, Any]:
    """Return an open request as people see it: with what the call does, in the sentence of its tool, and with what
    the agent said when it made the call.
    """
    consequence = sentence_of(state, request)
    sentence = {"consequence": consequence} if consequence else {}
    return {**request.view(), **sentence, "claim": state.calls.claim_about(request.number)}


def sentence_of(state: RunState, request: ApprovalRequest) -> str:
    """Return what the call of a request does, in the sentence of its tool; empty if the tool has none."""
    tool = state.spec.tool(request.tool) if state.spec and state.features >= CONSEQUENCES else None
    if tool is None or not tool.consequence:
        return ""
    return consequence_of(tool.consequence, parsed(request.arguments), tool.defaults)


def _may(state: RunState, request: ApprovalRequest) -> dict[str, Any]:
    """Return who may give any answer, and who may deny, each null for everybody; whether a decision has to be signed;
    the keys of the gateways whose signature suffices for all policies that ask; and each approver's own keys.
    """
    policies = [policy_for(state, each) or Policy() for each in request.required]
    answer = [_entitled(state, request, number, policy, denies=False) for number, policy in enumerate(policies)]
    deny = [_entitled(state, request, number, policy, denies=True) for number, policy in enumerate(policies)]
    return {
        "decide": _for_any(answer),
        "deny": _for_any(deny),
        "signed": any(policy.signatures == "required" for policy in policies),
        **_known_keys(policies, state.authority.revoked_keys),
    }


def may_steer(state: RunState) -> dict[str, Any] | None:
    """Return which statements about a run have to be signed, and the keys as in `may`; None if none can be signed.

    `signed`: pauses, retries, refinements and extensions. `resume_signed`: the end or the change of its pause.
    `messages_signed`: messages. `refine`, `extend`: the people who may do that, null for everybody but the agent.
    """
    if state.features < SIGNED_STEERING:
        return None
    policies = policies_of(state)
    signed = signatures_required(state)
    return {
        "signed": signed,
        "resume_signed": signed or bool(state.pause and state.pause.proof),
        "messages_signed": any(policy.proves_requesters for policy in policies),
        "refine": _unrefused(state, policies, lambda name: refuse_bystander(state, name)),
        "extend": _unrefused(
            state, policies, lambda name: any(refuse_extender(state, each, name) for each in policies)
        ),
        **_known_keys(policies, state.authority.revoked_keys),
    }


def _unrefused(state: RunState, policies: Sequence[Policy], refuses: Callable[[str], object]) -> list[str] | None:
    """Return the people whom a rule does not refuse, of all whom the policies and the run name; None if it refuses
    nobody for their name.
    """
    if not refuses(_NOBODY):
        return None
    named = {person.name for policy in policies for person in policy.approvers}
    named |= {name for policy in policies if not policy.approvers for name in policy.extensions.by}
    return sorted(name for name in named | {state.origin.user} if name and not refuses(name))


def _known_keys(policies: Sequence[Policy], revoked: Collection[str]) -> dict[str, Any]:
    """Return the keys of the gateways whose signature suffices for all policies, and each approver's own keys."""
    keys = [{key for gateway in policy.gateways for key in gateway.keys} for policy in policies]
    gateways = sorted(key for key in set.intersection(*keys) if key not in revoked)
    return {"gateways": gateways, "keys": _keys(policies, revoked)}


def _keys(policies: Sequence[Policy], revoked: Collection[str]) -> dict[str, list[str]]:
    """Return the keys of each approver that any of the policies lists and nobody has revoked in this thread."""
    found: dict[str, set[str]] = {}
    for person in (person for policy in policies for person in policy.approvers):
        found.setdefault(person.name, set()).update(key for key in person.keys if key not in revoked)
    return {name: sorted(keys) for name, keys in sorted(found.items()) if keys}


def _for_any(names: list[list[str] | None]) -> list[str] | None:
    """Return the people who may decide for any of the policies; None for everybody, if no policy names people."""
    named = [each for each in names if each is not None]
    return sorted({name for each in named for name in each}) if named else None


def _entitled(
    state: RunState, request: ApprovalRequest, number: int, policy: Policy, *, denies: bool
) -> list[str] | None:
    """Return the people who may decide for one of the requirements; None for everybody."""
    terms, who = request.required[number].terms, request.who_for(number)
    if not policy.approvers and not who:
        return None
    lists = [who, *([terms.veto] if denies and terms.veto else [])]
    known = [person.name for person in policy.approvers] or [name for names in lists for name in names]
    own = {name for name in known if any(stands_for(policy, names, name) for names in lists)}
    barred = not denies and not terms.requester_may_decide
    if barred:
        own = {name for name in own if not state.authority.is_requester(name)}
    lent = {
        each.to
        for each in state.authority.delegations
        if each.by in own and each.until > state.updated_at and (not policy.approvers or policy.approver(each.to))
    }
    return sorted(own | {name for name in lent if not (barred and state.authority.is_requester(name))})
