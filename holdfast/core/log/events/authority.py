"""Events of authority that outlasts one decision: remembered rules, and delegations of approval authority."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.statements import AuthorityDelegation, Revocation
from holdfast.core.log.events.base import Event, Stated


class RuleRemembered(Event):
    """The same call is allowed from now on in this thread, because everyone who approved it asked for that. A rule is
    valid only directly after the decision that creates it.

    Followed by: `tool_call_started` of the approved call.
    Correlate: `rule` is the id in a later `rule_revoked`, and in the `rule` of `verdict_given`.
    """

    type: Literal["rule_remembered"] = "rule_remembered"
    rule: str
    """The rule's id, for the signal `revoke`."""
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    by: tuple[str, ...]
    """The people whose approvals created the rule."""


class RuleRevoked(Stated):
    """A remembered rule was revoked: the policy alone judges such calls again.

    Followed by: no particular event. Correlate: `rule` is that of the `rule_remembered`.
    """

    STATEMENT = Revocation

    type: Literal["rule_revoked"] = "rule_revoked"
    rule: str
    by: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """The revocation as it was sent, which the signature covers."""
        return Revocation(by=self.by, reason=self.reason, remembered=self.rule, signature=self.signature)


class AuthorityDelegated(Stated):
    """An approver delegated their approval authority to another, within this thread.

    Followed by: no particular event. Correlate: `by` and `to` are those of a later `delegation_revoked`; a
    `decision_received` that uses the delegation has its `by` in `right`.
    """

    STATEMENT = AuthorityDelegation

    type: Literal["authority_delegated"] = "authority_delegated"
    by: str
    to: str
    until: datetime
    reason: str = ""

    @property
    def said(self) -> AuthorityDelegation:
        """The delegation as it was sent, if it was signed: the signature covers it."""
        return AuthorityDelegation(
            by=self.by, reason=self.reason, to=self.to, until=self.until, signature=self.signature
        )


class KeyRevoked(Stated):
    """A key was revoked: the votes, remembered rules and delegations that it signed are void. Recorded from feature
    level 1 on.

    Followed by: `approval_requested` for each call that it approved and that has not started.
    Correlate: `revoked` is the `key` of the events that it had signed.
    """

    STATEMENT = KeyRevocation

    type: Literal["key_revoked"] = "key_revoked"
    revoked: str
    """The revoked public key; `key` is the one that signed this."""
    by: str
    reason: str = ""


class DelegationRevoked(Stated):
    """A delegation of approval authority was revoked, together with the votes on open requests that used it.

    Followed by: no particular event. Correlate: `by` and `to` are those of the `authority_delegated`.
    """

    STATEMENT = Revocation

    type: Literal["delegation_revoked"] = "delegation_revoked"
    by: str
    to: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """The revocation as it was sent, which the signature covers."""
        return Revocation(by=self.by, reason=self.reason, delegated_to=self.to, signature=self.signature)
