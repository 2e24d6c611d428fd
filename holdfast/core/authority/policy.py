"""Policies: which tool calls run at once, which require approval, which never run, and the approvers.

1. Rules are tried in order; the first that matches gives the verdict. A `later` rule gives none: it says when a call
   that the rules after it let run, or that people approve, may start (`postponement`).
2. If none matches, reads are allowed and calls with an effect require approval.
3. A condition that cannot be evaluated fails closed: an `ask` or `deny` rule applies, an `allow` rule does not.
4. A policy is data: a run records it with the agent when it starts, and `evaluate` is a pure function.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from holdfast.core.authority.condition_costs import Budget
from holdfast.core.authority.conditions import ConditionFailed, check_condition, holds
from holdfast.core.authority.hours import Hours, ZoneOffsets
from holdfast.core.authority.patterns import check_pattern
from holdfast.core.authority.signatures import check_key
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import DEFINING, Definition, Frozen
from holdfast.core.base.names import person_name
from holdfast.core.base.paths import paths_in
from holdfast.core.budget.budget import Amounts
from holdfast.core.tools.effects import Effect
from holdfast.core.trust import Trust

VerdictKind = Literal["allow", "ask", "deny"]
RuleKind = Literal["allow", "ask", "deny", "later"]


def _normalised(name: Any) -> Any:
    return person_name(name) if isinstance(name, str) else name


Key = Annotated[str, AfterValidator(check_key)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}$"), BeforeValidator(_normalised)]
"""Name of a person, a role or a gateway; normalised to lower case (`holdfast.core.base.names`)."""
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]


class Approver(Definition):
    """A person who may decide on requests."""

    name: Name
    roles: tuple[Name, ...] = ()
    keys: tuple[Key, ...] = ()
    """Public keys (`holdfast keygen`), for example one per device; each is sufficient."""


class Gateway(Definition):
    """A service that authenticates people by other means and signs for their decisions (`holdfast gateway`)."""

    name: Name
    keys: tuple[Key, ...] = Field(min_length=1)


class Signer(Definition):
    """Somebody who signs portable files as a whole, including content that nobody else has signed.

    Its keys differ from approvers' keys, which sign only content that their owners have seen.
    """

    name: Name
    keys: tuple[Key, ...] = Field(min_length=1)


class Escalation(Definition):
    """Additional people to ask if a request is still open after some time."""

    after: Seconds
    """Seconds since the request was opened."""
    by: tuple[Name, ...] = Field(min_length=1)


class Terms(Definition):
    """How a request is decided: by whom, by how many, and by when. Times are in seconds since it was opened."""

    by: tuple[Name, ...] = ()
    """People and roles who may decide; empty for all approvers of the policy, or for anybody if it has none."""
    quorum: int = Field(default=1, ge=1, le=20)
    """Number of people who must give the same answer: approve, respond in the tool's place, or state the outcome. A
    single denial is enough to deny."""
    veto: tuple[Name, ...] = ()
    """Additional people and roles who may only deny."""
    requester_may_decide: bool = True
    """Whether the people who gave the run its task and messages may approve its calls. If not, and if signatures are
    required, messages must be signed too (`Policy.proves_requesters`)."""
    expires_after: Seconds | None = None
    """When the request expires and `on_expiry` decides; None for never."""
    on_expiry: Literal["deny", "approve"] = "deny"
    remind_every: Seconds | None = None
    """Interval of reminders to the approvers; None for no reminders."""
    escalate: tuple[Escalation, ...] = ()
    """Additional people to ask over time, in chronological order."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times = [step.after for step in self.escalate]
        if times != sorted(times):
            raise ValueError("escalate: the steps are not in chronological order")
        if self.escalate and not self.by:
            raise ValueError("escalate: everybody may decide from the start; set `by` to those who are asked first")
        return self

    def who(self, level: int) -> tuple[str, ...]:
        """Return the people and roles who may decide after `level` escalations; empty for everybody."""
        return (*self.by, *(name for step in self.escalate[:level] for name in step.by)) if self.by else ()


class Requirement(Frozen):
    """One policy's requirement for the approval of a call that it judges (`holdfast.core.authority.votes`)."""

    policy: str = ""
    """Digest of the policy whose approvers, keys and signatures count; empty for that of the run's agent."""
    rule: str = ""
    """Label of the rule that asks."""
    terms: Terms = Terms()


class Rule(Definition):
    """One line of a policy."""

    verdict: RuleKind
    """`allow`: run at once. `ask`: require approval. `deny`: never run; the LLM reads that the call was denied.
    `later`: run in `hours` only, if the rules after it let the call run."""
    tool: str = "*"
    """Names of tools that the rule applies to, as a shell pattern: `read_*`, `publish`."""
    effect: Effect | None = None
    """The effect class that the rule applies to; None for all."""
    agent: str = "*"
    """Names of agents that the rule applies to, as a shell pattern."""
    depth: int = Field(default=0, ge=0)
    """Minimum number of agents above the run: 1 for runs of sub-agents."""
    when: str = ""
    """A condition on the call (`holdfast.core.authority.conditions`); empty for none."""
    reason: str = ""
    """Why the rule exists; shown to approvers, and to the LLM if the call is denied."""
    terms: Terms | None = None
    """For `ask`: how the request is decided; None for the policy's own terms."""
    hours: Hours | None = None
    """For `later`: the hours in which calls may start."""

    @field_validator("tool", "agent")
    @classmethod
    def _can_match(cls, pattern: str, info: ValidationInfo) -> str:
        if info.context == DEFINING:
            check_pattern(pattern, "tool" if info.field_name == "tool" else "agent")
        return pattern

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        if self.when:
            try:
                check_condition(self.when)
            except ValueError as error:
                raise ValueError(f"when: {error}") from None
        if self.terms and self.verdict != "ask":
            raise ValueError(f"terms: only an `ask` rule has terms, and the verdict of this one is {self.verdict}")
        if (self.hours is None) == (self.verdict == "later"):
            raise ValueError("hours: a `later` rule has hours, and no other rule has any")
        return self

    @property
    def label(self) -> str:
        """The rule as verdict events name it: `ask publish`, `allow * (read)`, `deny pay if args.cents > 100`."""
        agent = f" by {self.agent}" if self.agent != "*" else ""
        depth = f" at depth {self.depth}" if self.depth else ""
        effect = f" ({self.effect})" if self.effect else ""
        hours = f" until {self.hours.words}" if self.hours else ""
        return f"{self.verdict} {self.tool}{effect}{agent}{depth}{hours}" + (f" if {self.when}" if self.when else "")


class Extensions(Definition):
    """The people who may extend the budgets of runs, and the maximum amounts."""

    by: tuple[Name, ...] = ()
    """People and roles; empty for the approvers of the policy and the person who gave the task, or for anybody if it
    has no approvers. Agents never may."""
    most: Amounts | None = None
    """The maximum of one extension; amounts that it does not name may not be extended. None for no such limit."""


class Policy(Definition):
    """Ordered rules, the people who decide, and how they prove their identity."""

    rules: tuple[Rule, ...] = ()
    approvers: tuple[Approver, ...] = ()
    """The people who may decide; empty for anybody."""
    gateways: tuple[Gateway, ...] = ()
    signers: tuple[Signer, ...] = ()
    """The signers of portable files that are imported or verified (`--keys`). They have no say in approvals."""
    signatures: Literal["optional", "required"] = "optional"
    """`required`: a decision counts only if the approver or a gateway has signed it."""
    terms: Terms = Terms()
    """How requests are decided if their rule has no terms."""
    extensions: Extensions = Extensions()
    """The people who may extend budgets."""

    @model_validator(mode="after")
    def _of_people_who_exist(self) -> Self:
        names = [person.name for person in self.approvers]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"approvers: {', '.join(sorted(twice))} is there twice")
        roles = {role for person in self.approvers for role in person.roles}
        if clash := roles & set(names):
            raise ValueError(f"approvers: {', '.join(sorted(clash))} is a person and a role")
        for place, terms in self._all_terms():
            for name in (*terms.who(len(terms.escalate)), *terms.veto):
                if self.approvers and name not in roles and name not in names:
                    raise ValueError(f"{place}: there is no approver or role {name!r}")
            able = len(self.entitled(terms.who(len(terms.escalate))))
            if self.approvers and able < terms.quorum:
                raise ValueError(f"{place}: {able} may decide, and the quorum is {terms.quorum}")
        for name in self.extensions.by:
            if self.approvers and name not in roles and name not in names:
                raise ValueError(f"extensions: there is no approver or role {name!r}")
        if self.signatures == "required" and not (self.gateways or any(person.keys for person in self.approvers)):
            raise ValueError("signatures: they are required, but no approver has a key")
        return self

    def _all_terms(self) -> list[tuple[str, Terms]]:
        own = [(f"rules.{number}.terms", rule.terms) for number, rule in enumerate(self.rules) if rule.terms]
        return [("terms", self.terms), *own]

    @cached_property
    def hash(self) -> str:
        """Digest of the policy: policies with the same hash give the same verdicts and trust the same people."""
        return digest(["policy/1", self.model_dump(mode="json", exclude_defaults=True, exclude={"signers"})])

    @property
    def zones(self) -> tuple[str, ...]:
        """The names of the time zones of its hours, each once."""
        return tuple(dict.fromkeys(rule.hours.zone for rule in self.rules if rule.hours))

    @property
    def file_keys(self) -> frozenset[str]:
        """The keys that may sign portable files."""
        return frozenset(key for signer in self.signers for key in signer.keys)

    @property
    def proves_requesters(self) -> bool:
        """Whether requesters must be authenticated: names are proven, and some requests exclude their requesters."""
        some = any(not terms.requester_may_decide for _, terms in self._all_terms())
        return self.signatures == "required" and some

    @property
    def keys(self) -> tuple[str, ...]:
        """The public keys of its approvers and gateways."""
        people = tuple(key for person in self.approvers for key in person.keys)
        return (*people, *(key for gateway in self.gateways for key in gateway.keys))

    def approver(self, name: str) -> Approver | None:
        """Return the approver with this name, if there is one."""
        return next((person for person in self.approvers if person.name == name), None)

    def entitled(self, who: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the approvers that these names and roles denote; of all approvers if `who` is empty."""
        return tuple(p.name for p in self.approvers if not who or p.name in who or set(p.roles) & set(who))


@dataclass(frozen=True)
class ToolUse:
    """One tool call, as a policy judges it."""

    tool: str
    effect: Effect
    arguments: Any = None
    """The parsed JSON."""
    agent: str = ""
    depth: int = 0
    workspace: str = ""
    trust: Trust = "agent"
    """Trust level of what the LLM writes, given everything it has read."""
    context: dict[str, Any] | None = None
    """The typed context of the run; None below the feature level at which conditions read it."""
    budget: Budget | None = field(default_factory=Budget, compare=False)
    """Limits the total cost of all conditions on the call; None for no limit, as in 0.1.0."""

    @cached_property
    def variables(self) -> dict[str, Any]:
        """The variables of a rule's condition."""
        call = {"args": self.arguments, "tool": self.tool, "effect": str(self.effect)}
        where = {"agent": self.agent, "depth": self.depth, "workspace": self.workspace}
        paths = paths_in(self.arguments, self.workspace)
        context = {} if self.context is None else {"context": self.context}
        return {**call, **where, "paths": paths, "trust": self.trust, **context}


class Verdict(Frozen):
    """A policy's verdict on one call, and the rule that gave it."""

    verdict: VerdictKind
    rule: str
    reason: str = ""
    terms: Terms = Terms()
    """For `ask`: how the request is decided. If several policies ask, the first one's."""
    requirements: tuple[Requirement, ...] = ()
    """For `ask`: the requirements of each policy, if others than the agent's own ask; otherwise empty."""
    remembered: str = ""
    """The remembered rule that turns `ask` into `allow`."""

    @property
    def required(self) -> tuple[Requirement, ...]:
        """The requirements of all policies that ask: at least one."""
        return self.requirements or (Requirement(rule=self.rule, terms=self.terms),)

    def with_terms(self, change: Callable[[Terms], Terms]) -> "Verdict":
        """Return the verdict with the terms of every policy changed."""
        changed = tuple(each.model_copy(update={"terms": change(each.terms)}) for each in self.requirements)
        return self.model_copy(update={"terms": change(self.terms), "requirements": changed})

    def denied_on_expiry(self) -> "Verdict":
        """Return the verdict with terms under which only a person may approve."""
        return self.with_terms(lambda terms: terms.model_copy(update={"on_expiry": "deny"}))


def evaluate(policy: Policy, use: ToolUse) -> Verdict:
    """Evaluate a tool call.

    Args:
        policy: The rules to try, in order.
        use: The call.

    Returns:
        The verdict of the first rule that matches, or of the default.
    """
    for rule in policy.rules:
        if rule.verdict == "later":
            continue
        applies, note = _applies(rule, use)
        if applies:
            terms = rule.terms or policy.terms
            return Verdict(verdict=rule.verdict, rule=rule.label + note, reason=rule.reason, terms=terms)
    if use.effect is Effect.READ:
        return Verdict(verdict="allow", rule="default: reads are allowed")
    return Verdict(verdict="ask", rule="default: effects ask", terms=policy.terms)


class Postponement(Frozen):
    """A call that may run, but not now."""

    rule: str
    """Label of the rule."""
    reason: str = ""
    until: datetime | None
    """When its hours begin; None if their time zone is unknown, so that they never do."""


def postponement(policy: Policy, use: ToolUse, *, at: datetime, zones: Iterable[ZoneOffsets]) -> Postponement | None:
    """Return whether a call that may run has to start later; of several hours, those that begin last.

    Args:
        policy: The rules to try, in order, up to the one that gives the verdict.
        use: The call.
        at: The time.
        zones: The offsets of time zones that the run has recorded.
    """
    found: list[Postponement] = []
    for rule in policy.rules if policy.zones else ():
        applies, note = _applies(rule, use)
        if applies and rule.hours is None:
            break
        if applies and rule.hours and (opens := rule.hours.next_opening(at, zones)) != at:
            found.append(Postponement(rule=rule.label + note, reason=rule.reason, until=opens))
    return max(found, key=lambda each: (each.until is None, each.until or at), default=None)


def is_about(rule: Rule, use: ToolUse) -> bool:
    """Whether a rule is about a call, on the assumption that its condition is met."""
    named = fnmatchcase(use.tool, rule.tool) and fnmatchcase(use.agent, rule.agent)
    return named and rule.effect in (None, use.effect) and use.depth >= rule.depth


def _applies(rule: Rule, use: ToolUse) -> tuple[bool, str]:
    """Whether the rule applies, with a note for its label if the condition could not be evaluated."""
    if not is_about(rule, use):
        return False, ""
    if not rule.when:
        return True, ""
    try:
        return holds(rule.when, use.variables, use.budget), ""
    except ConditionFailed as error:
        return rule.verdict != "allow", f" (the condition cannot be evaluated: {error})"


def allow(tool: str = "*", *, effect: Effect | None = None, when: str = "") -> Rule:
    """Make a rule that lets matching calls run at once.

    Args:
        tool: Names of tools, as a shell pattern.
        effect: The effect class; None for all.
        when: A condition on the call (`holdfast.core.authority.conditions`).
    """
    return Rule(verdict="allow", tool=tool, effect=effect, when=when)


def ask(
    tool: str = "*", *, effect: Effect | None = None, when: str = "", reason: str = "", terms: Terms | None = None
) -> Rule:
    """Make a rule that requires approval of matching calls.

    Args:
        tool: Names of tools, as a shell pattern.
        effect: The effect class; None for all.
        when: A condition on the call (`holdfast.core.authority.conditions`).
        reason: Why the rule exists; shown to approvers.
        terms: How requests are decided; None for the policy's own terms.
    """
    return Rule(verdict="ask", tool=tool, effect=effect, when=when, reason=reason, terms=terms)


def deny(tool: str = "*", *, effect: Effect | None = None, when: str = "", reason: str = "") -> Rule:
    """Make a rule that denies matching calls.

    Args:
        tool: Names of tools, as a shell pattern.
        effect: The effect class; None for all.
        when: A condition on the call (`holdfast.core.authority.conditions`).
        reason: Why the rule exists; shown to the LLM.
    """
    return Rule(verdict="deny", tool=tool, effect=effect, when=when, reason=reason)


def later(tool: str = "*", *, until: Hours, effect: Effect | None = None, when: str = "", reason: str = "") -> Rule:
    """Make a rule that lets matching calls start in some hours only; outside of them, the run sleeps until they begin.

    The rules after it decide whether such a call runs at all, or requires approval.

    Args:
        tool: Names of tools, as a shell pattern.
        until: The hours in which calls may start.
        effect: The effect class; None for all.
        when: A condition on the call (`holdfast.core.authority.conditions`).
        reason: Why the rule exists; shown to people.
    """
    return Rule(verdict="later", tool=tool, effect=effect, when=when, reason=reason, hours=until)
