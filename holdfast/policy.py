"""Policy: which tool calls run at once, which wait for a person, which never run.

1. Rules are tried in order; the first whose tool pattern and effect both match gives the verdict.
2. Where none matches, reads are allowed and everything that has an effect asks.
3. A policy is data: it is recorded with the agent when a run starts, and evaluated here, by a pure function.
"""

from fnmatch import fnmatchcase
from typing import Literal

from holdfast.effects import Effect
from holdfast.model import Frozen

VerdictKind = Literal["allow", "ask", "deny"]


class Rule(Frozen):
    """One line of a policy."""

    verdict: VerdictKind
    """`allow`: run at once. `ask`: a person decides. `deny`: never, and the LLM is told so."""
    tool: str = "*"
    """Tool names it applies to, as a shell pattern: `read_*`, `publish`."""
    effect: Effect | None = None
    """The effect class it applies to; None for all."""
    reason: str = ""
    """Why the rule exists; shown to the person who is asked, and to the LLM that is denied."""

    @property
    def label(self) -> str:
        """The rule as verdict events name it: `ask publish`, `allow * (read)`."""
        return f"{self.verdict} {self.tool}" + (f" ({self.effect})" if self.effect else "")

    def matches(self, tool: str, effect: Effect) -> bool:
        """Whether the rule applies to a call of `tool`."""
        return self.effect in (None, effect) and fnmatchcase(tool, self.tool)


class Policy(Frozen):
    """Ordered rules; the first match decides."""

    rules: tuple[Rule, ...] = ()


class Verdict(Frozen):
    """What the policy says of one call, and the rule that said it."""

    verdict: VerdictKind
    rule: str
    reason: str = ""


def evaluate(policy: Policy, tool: str, effect: Effect) -> Verdict:
    """The verdict on a call of `tool`."""
    for rule in policy.rules:
        if rule.matches(tool, effect):
            return Verdict(verdict=rule.verdict, rule=rule.label, reason=rule.reason)
    if effect is Effect.READ:
        return Verdict(verdict="allow", rule="default: reads are allowed")
    return Verdict(verdict="ask", rule="default: effects ask")


def allow(tool: str = "*", *, effect: Effect | None = None) -> Rule:
    """A rule that lets matching calls run at once."""
    return Rule(verdict="allow", tool=tool, effect=effect)


def ask(tool: str = "*", *, effect: Effect | None = None, reason: str = "") -> Rule:
    """A rule that makes matching calls wait for a person."""
    return Rule(verdict="ask", tool=tool, effect=effect, reason=reason)


def deny(tool: str = "*", *, effect: Effect | None = None, reason: str = "") -> Rule:
    """A rule that forbids matching calls."""
    return Rule(verdict="deny", tool=tool, effect=effect, reason=reason)
