"""Policy: which tool calls run at once, which wait for people, which never run; and who those people are.

1. Rules are tried in order; the first that matches gives the verdict.
2. Where none matches, reads are allowed and everything that has an effect asks.
3. A condition that has no answer fails closed: the rule counts if it asks or denies, and not if it allows.
4. A policy is data: it is recorded with the agent when a run starts, and evaluated here, by a pure function.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from holdfast.authority.conditions import ConditionFailed, check_condition, holds
from holdfast.authority.signatures import check_key
from holdfast.base.digests import digest
from holdfast.base.models import Frozen
from holdfast.base.names import person_name
from holdfast.base.paths import paths_in
from holdfast.tools.effects import Effect
from holdfast.trust import Trust

VerdictKind = Literal["allow", "ask", "deny"]


def _spelt(name: Any) -> Any:
    return person_name(name) if isinstance(name, str) else name


Key = Annotated[str, AfterValidator(check_key)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}$"), BeforeValidator(_spelt)]
"""Of a person, a role or a gateway; read as its one spelling, in lower case (`holdfast.base.names`)."""
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]


class Approver(Frozen):
    """Somebody who may decide."""

    name: Name
    roles: tuple[Name, ...] = ()
    keys: tuple[Key, ...] = ()
    """Public keys (`starter.py keygen`), each as good as the other: one for each device."""


class Gateway(Frozen):
    """A service that knows people by other means, and vouches for who decides (`gateway.py`)."""

    name: Name
    keys: tuple[Key, ...] = Field(min_length=1)


class Escalation(Frozen):
    """More people are asked, where nobody has decided for so long."""

    after: Seconds
    """Since the request was opened."""
    by: tuple[Name, ...] = Field(min_length=1)


class Terms(Frozen):
    """How a request is decided: by whom, by how many, and until when. Times are seconds since it was opened."""

    by: tuple[Name, ...] = ()
    """People and roles who may decide; empty for every approver of the policy, or anybody if it has none."""
    quorum: int = Field(default=1, ge=1, le=20)
    """How many people have to give the same answer: approve, answer in the tool's place, or say what became of it. One
    denial is enough to deny."""
    veto: tuple[Name, ...] = ()
    """People and roles who may deny, besides."""
    requester_may_decide: bool = True
    """Whether those who gave the run its task and messages may approve what it asks for. Where not, and signatures are
    required, messages have to be signed, too (`Policy.proves_requesters`)."""
    expires_after: Seconds | None = None
    """When `on_expiry` takes the place of a decision; None for never."""
    on_expiry: Literal["deny", "approve"] = "deny"
    remind_every: Seconds | None = None
    """How often those who may decide are reminded."""
    escalate: tuple[Escalation, ...] = ()
    """Who is asked besides, later, in the order of time."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times = [step.after for step in self.escalate]
        if times != sorted(times):
            raise ValueError("escalate: the steps are not in the order of time")
        if self.escalate and not self.by:
            raise ValueError("escalate: everybody may decide from the start; name those who are asked first as `by`")
        return self

    def who(self, level: int) -> tuple[str, ...]:
        """The people and roles who may decide after so many escalations; empty for everybody."""
        return (*self.by, *(name for step in self.escalate[:level] for name in step.by)) if self.by else ()


class Rule(Frozen):
    """One line of a policy."""

    verdict: VerdictKind
    """`allow`: run at once. `ask`: people decide. `deny`: never, and the LLM is told so."""
    tool: str = "*"
    """Tool names it applies to, as a shell pattern: `read_*`, `publish`."""
    effect: Effect | None = None
    """The effect class it applies to; None for all."""
    agent: str = "*"
    """Names of agents it applies to, as a shell pattern."""
    depth: int = Field(default=0, ge=0)
    """It applies to runs that have at least so many agents above them: 1 for delegated runs."""
    when: str = ""
    """A condition on the call (`holdfast.authority.conditions`); empty for none."""
    reason: str = ""
    """Why the rule exists; shown to the person who is asked, and to the LLM that is denied."""
    terms: Terms | None = None
    """For `ask`: how it is decided; None for the policy's own terms."""

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        if self.when:
            try:
                check_condition(self.when)
            except ValueError as error:
                raise ValueError(f"when: {error}") from None
        if self.terms and self.verdict != "ask":
            raise ValueError(f"terms: nobody is asked by a rule that says {self.verdict}")
        return self

    @property
    def label(self) -> str:
        """The rule as verdict events name it: `ask publish`, `allow * (read)`, `deny pay if args.cents > 100`."""
        agent = f" by {self.agent}" if self.agent != "*" else ""
        depth = f" at depth {self.depth}" if self.depth else ""
        effect = f" ({self.effect})" if self.effect else ""
        return f"{self.verdict} {self.tool}{effect}{agent}{depth}" + (f" if {self.when}" if self.when else "")


class Policy(Frozen):
    """Ordered rules, the people who decide, and how their decisions are known to be theirs."""

    rules: tuple[Rule, ...] = ()
    approvers: tuple[Approver, ...] = ()
    """Who may decide; empty for anybody."""
    gateways: tuple[Gateway, ...] = ()
    signatures: Literal["optional", "required"] = "optional"
    """`required`: a decision counts only if its approver or a gateway has signed it."""
    terms: Terms = Terms()
    """How requests are decided where their rule does not say."""

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
        if self.signatures == "required" and not (self.gateways or any(person.keys for person in self.approvers)):
            raise ValueError("signatures: they are required, and nobody has a key")
        return self

    def _all_terms(self) -> list[tuple[str, Terms]]:
        own = [(f"rules.{number}.terms", rule.terms) for number, rule in enumerate(self.rules) if rule.terms]
        return [("terms", self.terms), *own]

    @cached_property
    def hash(self) -> str:
        """Digest of the policy: two with the same hash say the same."""
        return digest(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def proves_requesters(self) -> bool:
        """Whether it has to be known who asks: some requests are not for requesters to decide, and names are proven."""
        some = any(not terms.requester_may_decide for _, terms in self._all_terms())
        return self.signatures == "required" and some

    def approver(self, name: str) -> Approver | None:
        """The approver of that name."""
        return next((person for person in self.approvers if person.name == name), None)

    def entitled(self, who: tuple[str, ...]) -> tuple[str, ...]:
        """The approvers whom these names and roles stand for; all of them where there are none."""
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
    """What the LLM's words are worth, after all that it has read."""

    @cached_property
    def variables(self) -> dict[str, Any]:
        """What a rule's condition may name."""
        call = {"args": self.arguments, "tool": self.tool, "effect": str(self.effect)}
        where = {"agent": self.agent, "depth": self.depth, "workspace": self.workspace}
        paths = paths_in(self.arguments, self.workspace)
        return {**call, **where, "paths": paths, "trust": self.trust}


class Verdict(Frozen):
    """What the policy says of one call, and the rule that said it."""

    verdict: VerdictKind
    rule: str
    reason: str = ""
    terms: Terms = Terms()
    """For `ask`: how it is to be decided."""
    remembered: str = ""
    """The remembered rule that lifts `ask`."""


def evaluate(policy: Policy, use: ToolUse) -> Verdict:
    """The verdict on a tool call."""
    for rule in policy.rules:
        applies, note = _applies(rule, use)
        if applies:
            terms = rule.terms or policy.terms
            return Verdict(verdict=rule.verdict, rule=rule.label + note, reason=rule.reason, terms=terms)
    if use.effect is Effect.READ:
        return Verdict(verdict="allow", rule="default: reads are allowed")
    return Verdict(verdict="ask", rule="default: effects ask", terms=policy.terms)


def _applies(rule: Rule, use: ToolUse) -> tuple[bool, str]:
    """Whether the rule applies, and what is to be said of how that was found."""
    named = fnmatchcase(use.tool, rule.tool) and fnmatchcase(use.agent, rule.agent)
    if not named or rule.effect not in (None, use.effect) or use.depth < rule.depth:
        return False, ""
    if not rule.when:
        return True, ""
    try:
        return holds(rule.when, use.variables), ""
    except ConditionFailed as error:
        return rule.verdict != "allow", f" (the condition has no answer: {error})"


def allow(tool: str = "*", *, effect: Effect | None = None, when: str = "") -> Rule:
    """A rule that lets matching calls run at once."""
    return Rule(verdict="allow", tool=tool, effect=effect, when=when)


def ask(
    tool: str = "*", *, effect: Effect | None = None, when: str = "", reason: str = "", terms: Terms | None = None
) -> Rule:
    """A rule that makes matching calls wait for people."""
    return Rule(verdict="ask", tool=tool, effect=effect, when=when, reason=reason, terms=terms)


def deny(tool: str = "*", *, effect: Effect | None = None, when: str = "", reason: str = "") -> Rule:
    """A rule that forbids matching calls."""
    return Rule(verdict="deny", tool=tool, effect=effect, when=when, reason=reason)
