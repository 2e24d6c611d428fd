"""The authority to let calls run: approval requests, remembered rules, delegations, used statements and requesters.

If a list reaches its bound, dropping an entry takes authority away and never grants any.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.statements import AuthorityDelegation
from holdfast.core.authority.votes import Standing, Vote, without
from holdfast.core.base.models import Frozen, replace
from holdfast.errors import EventOutOfPlace

DECIDED = 100
"""Decided requests that are kept, so that a late or repeated decision is answered with how the request was decided."""

ASKED_ANEW = "asked anew as request"
"""Marks a request that another open request has replaced, whose id follows."""

RULES = 200
"""Remembered rules that a thread has at the same time; the oldest make room, and their calls require approval again."""

RULES_BYTES = 150_000
"""Bytes of the remembered rules, as JSON; the oldest make room."""

REQUESTERS = 1_000
"""Requesters that a thread keeps. Beyond that, any person counts as a possible requester."""

REQUESTERS_CHARS = 50_000
"""Characters of the requesters' names, in total."""


class RememberedRule(Frozen):
    """A call that is allowed from now on, because everybody who approved it asked for that."""

    rule: str
    """The rule's id."""
    tool: str
    call_digest: str
    votes: tuple[Vote, ...]
    """The approvals that made the rule. It is valid only while they would be."""

    def view(self) -> dict[str, Any]:
        """Return the rule as `show` presents it."""
        by = ", ".join(vote.by for vote in self.votes)
        return {"rule": self.rule, "tool": self.tool, "call_digest": self.call_digest, "by": by}


class DelegatedAuthority(Frozen):
    """Approval authority that an approver has delegated to another."""

    by: str
    to: str
    until: datetime
    statement: AuthorityDelegation
    """The delegation as it was sent, signature included."""

    def view(self) -> dict[str, Any]:
        """Return the delegation as `show` presents it."""
        return {"by": self.by, "to": self.to, "until": self.until.isoformat()}


class UsedStatement(Frozen):
    """A signed statement that has taken effect, and must not take effect again."""

    digest: str
    """Digest of the signed content."""
    until: datetime
    """When the statement expires by itself."""


@dataclass(frozen=True)
class Authority:
    """The approval authority in a thread: requests, rules, delegations, used statements, keys and requesters."""

    requests: tuple[ApprovalRequest, ...] = ()
    """The open requests, oldest first."""
    request_count: int = 0
    """How many requests the whole thread has opened: the id of the last one."""
    decided: dict[str, str] = field(default_factory=dict)
    """Request id → its decision and the person who made it; the last `DECIDED`."""
    proposed_rule: RememberedRule | None = None
    """The rule that the last recorded approval makes. If the next event is not its `rule_remembered`, it lapses."""
    rules: tuple[RememberedRule, ...] = ()
    """The remembered rules, oldest first."""
    rule_count: int = 0
    """How many rules the whole thread has remembered: the id of the last one."""
    delegations: tuple[DelegatedAuthority, ...] = ()
    used_statements: tuple[UsedStatement, ...] = ()
    """Signed delegations and messages that have not expired yet: each counts once."""
    revoked_keys: tuple[str, ...] = ()
    """Public keys that are no longer valid in this thread, although a policy lists them."""
    requesters: tuple[str, ...] = ()
    """The people who gave the task and sent messages."""
    requesters_left_out: bool = False
    """There were more requesters than are kept, so any person may be one."""
    requesters_unproven: bool = False
    """An unsigned message was accepted, so the requesters are not known for certain."""

    def request(self, name: str) -> ApprovalRequest | None:
        """Return the open request with this id; None if there is none."""
        return next((request for request in self.requests if request.id == name), None)

    def open_request(self, name: str) -> ApprovalRequest:
        """Return the open request with this id.

        Raises:
            EventOutOfPlace: There is none.
        """
        request = self.request(name)
        if request is None:
            raise EventOutOfPlace(f"request {name} is not open")
        return request

    def is_requester(self, name: str) -> bool:
        """Return whether this person may be one of the requesters."""
        return self.requesters_left_out or name in self.requesters

    def open(self, request: ApprovalRequest, *, lapsed: str = "") -> "Authority":
        """Open a request; see `announce`."""
        return self.announce(request, lapsed=lapsed).open_announced(request)

    def open_announced(self, request: ApprovalRequest) -> "Authority":
        """Open a request that was announced."""
        return replace(self, requests=(*self.requests, request))

    def announce(self, request: ApprovalRequest, *, lapsed: str = "") -> "Authority":
        """Reserve the id of a request that opens when its preview is computed.

        A call has one request at a time: an older one, about other arguments or another state of the world, is closed.

        Args:
            request: The new request.
            lapsed: Id of the request whose approval of the call lapses; the rule that this approval made lapses, too.
        """
        anew = f"{ASKED_ANEW} {request.id}"
        older = [each for each in self.requests if each.number == request.number]
        decided = dict(self.decided)
        for each in older:
            edited = each.arguments != request.arguments
            decided[each.id] = f"edited by {request.edited_by}, {anew}" if edited else anew
        rules = self.rules
        if lapsed:
            decided[lapsed] = f"{decided.get(lapsed, 'decided')}, then {anew}"
            rules = tuple(rule for rule in rules if all(vote.said.request != lapsed for vote in rule.votes))
        return replace(
            self,
            requests=tuple(each for each in self.requests if each not in older),
            request_count=self.request_count + 1,
            decided=_last(decided),
            rules=rules,
        )

    def close(self, name: str, how: str) -> "Authority":
        """Close a request, and keep how it was decided."""
        requests = tuple(request for request in self.requests if request.id != name)
        return replace(self, requests=requests, decided=_last({**self.decided, name: how}))

    def with_request(self, changed: ApprovalRequest) -> "Authority":
        """Replace the open request that has the same id."""
        return replace(self, requests=tuple(changed if each.id == changed.id else each for each in self.requests))

    def remind(self, name: str) -> "Authority":
        """Count one more reminder of an open request.

        Raises:
            EventOutOfPlace: It is not open.
        """
        request = self.open_request(name)
        return self.with_request(request.model_copy(update={"reminded": request.reminded + 1}))

    def escalate(self, name: str) -> "Authority":
        """Count one more escalation of an open request.

        Raises:
            EventOutOfPlace: It is not open.
        """
        request = self.open_request(name)
        return self.with_request(request.model_copy(update={"level": request.level + 1}))

    def without_requests_about(self, number: int) -> "Authority":
        """Close the open requests about a call that now has a result."""
        if all(request.number != number for request in self.requests):
            return self
        return replace(self, requests=tuple(request for request in self.requests if request.number != number))

    def remember(self, *, rule: str, tool: str, call_digest: str, by: tuple[str, ...]) -> "Authority":
        """Remember the rule that the last recorded decision makes.

        Raises:
            EventOutOfPlace: That decision makes no such rule.
        """
        proposed = self.proposed_rule
        voters = tuple(vote.by for vote in proposed.votes) if proposed else ()
        made = (proposed.rule, proposed.tool, proposed.call_digest, voters) if proposed else None
        if proposed is None or made != (rule, tool, call_digest, by):
            raise EventOutOfPlace(f"the event just before it does not make rule {rule} for {tool}")
        rules = [*self.rules, proposed]
        while rules and (len(rules) > RULES or sum(map(_size, rules)) > RULES_BYTES):
            del rules[0]
        return replace(self, rules=tuple(rules), rule_count=self.rule_count + 1)

    def forget(self, rule: str) -> "Authority":
        """Revoke a remembered rule."""
        return replace(self, rules=tuple(each for each in self.rules if each.rule != rule))

    def delegate(self, delegation: DelegatedAuthority, *, at: datetime) -> "Authority":
        """Delegate approval authority. Drop expired delegations, and an older one between the same two people."""
        others = (each for each in self._delegations_except(delegation.by, delegation.to) if each.until > at)
        return replace(self, delegations=(*others, delegation))

    def revoke_delegation(self, by: str, to: str) -> "Authority":
        """Revoke a delegation, and the votes that were cast by it on requests that are still open."""
        requests = tuple(
            with_votes(request, without(request.votes, lambda vote, each: (each.right, vote.by) == (by, to)))
            for request in self.requests
        )
        return replace(self, delegations=self._delegations_except(by, to), requests=requests)

    def revoke_keys(self, keys: tuple[str, ...]) -> "Authority":
        """Revoke keys, and the votes and rules that they signed. Delegations need no change: each use verifies them."""
        requests = tuple(
            with_votes(request, tuple(vote for vote in request.votes if vote.key not in keys))
            for request in self.requests
        )
        rules = tuple(rule for rule in self.rules if all(vote.key not in keys for vote in rule.votes))
        revoked = tuple(dict.fromkeys((*self.revoked_keys, *keys)))
        return replace(self, revoked_keys=revoked, requests=requests, rules=rules)

    def use_statement(self, digest: str, *, until: datetime, at: datetime) -> "Authority":
        """Record that a signed statement has taken effect; drop expired ones."""
        unexpired = (each for each in self.used_statements if each.until > at)
        return replace(self, used_statements=(*unexpired, UsedStatement(digest=digest, until=until)))

    def add_requester(self, name: str) -> "Authority":
        """Add a requester. Earlier votes of this person no longer count if requesters may not decide."""
        if name in ("", *self.requesters):
            return self
        chars = sum(map(len, self.requesters)) + len(name)
        full = len(self.requesters) >= REQUESTERS or chars > REQUESTERS_CHARS
        requests = tuple(_without_requester(request, "" if full else name) for request in self.requests)
        return replace(
            self,
            requesters=self.requesters if full else (*self.requesters, name),
            requesters_left_out=self.requesters_left_out or full,
            requests=requests,
        )

    def _delegations_except(self, by: str, to: str) -> tuple[DelegatedAuthority, ...]:
        return tuple(each for each in self.delegations if (each.by, each.to) != (by, to))


def _without_requester(request: ApprovalRequest, name: str) -> ApprovalRequest:
    """Return the request without this person's votes, or without any if `name` is empty, for each policy under which
    requesters may not decide.
    """
    barred = {number for number, each in enumerate(request.required) if not each.terms.requester_may_decide}

    def drops(vote: Vote, standing: Standing) -> bool:
        return standing.requirement in barred and (not name or name in (vote.by, standing.right))

    return with_votes(request, without(request.votes, drops)) if barred else request


def with_votes(request: ApprovalRequest, votes: tuple[Vote, ...]) -> ApprovalRequest:
    """Return the request with these votes."""
    return request.model_copy(update={"votes": votes})


def with_reason(request: ApprovalRequest, why: str) -> ApprovalRequest:
    """Return the request with another reason."""
    return request.model_copy(update={"why": why})


def _last(decided: dict[str, str]) -> dict[str, str]:
    return decided if len(decided) <= DECIDED else dict([*decided.items()][-DECIDED:])


def _size(rule: RememberedRule) -> int:
    return len(rule.model_dump_json().encode())
