"""Why a policy says what it says of a tool call: each rule up to the one that decides, and who may decide."""

from fnmatch import fnmatchcase
from typing import Any

from holdfast.authority.conditions import ConditionFailed, holds
from holdfast.authority.policy import Policy, Rule, Terms, ToolUse, Verdict, evaluate
from holdfast.base.models import Frozen


class Judged(Frozen):
    """One rule, and why it applies or does not."""

    number: int
    """From 0, in the order of the policy."""
    rule: str
    applies: bool
    why: str


class Explanation(Frozen):
    """What a policy says of one call, and why."""

    verdict: Verdict
    judged: tuple[Judged, ...]
    """The rules that were tried; the last of them decides, if it applies."""
    who: tuple[str, ...] = ()
    """For `ask`: the approvers who may decide at once; empty for anybody."""
    later: tuple[tuple[float, tuple[str, ...]], ...] = ()
    """For `ask`: after how many seconds which approvers may, besides."""
    veto: tuple[str, ...] = ()
    """For `ask`: the approvers who may deny, besides."""

    def view(self) -> dict[str, Any]:
        """The explanation as JSON."""
        told = self.model_dump(mode="json", exclude={"verdict", "later"})
        told |= {"later": [{"after": after, "who": list(who)} for after, who in self.later]}
        return {**self.verdict.model_dump(mode="json"), **told}


def explain(policy: Policy, use: ToolUse) -> Explanation:
    """The verdict on a tool call, with the way to it."""
    judged: list[Judged] = []
    for number, rule in enumerate(policy.rules):
        applies, why = _judge(rule, use)
        judged.append(Judged(number=number, rule=rule.label, applies=applies, why=why))
        if applies:
            break
    verdict = evaluate(policy, use)
    if verdict.verdict != "ask":
        return Explanation(verdict=verdict, judged=tuple(judged))
    return Explanation(verdict=verdict, judged=tuple(judged), **_people(policy, verdict.terms))


def _judge(rule: Rule, use: ToolUse) -> tuple[bool, str]:
    if not fnmatchcase(use.tool, rule.tool):
        return False, f"the tool is {use.tool}"
    if rule.effect not in (None, use.effect):
        return False, f"the effect is {use.effect}"
    if not fnmatchcase(use.agent, rule.agent):
        return False, f"the agent is {use.agent or 'not named'}"
    if use.depth < rule.depth:
        return False, f"the depth is {use.depth}"
    if not rule.when:
        return True, "it matches"
    try:
        met = holds(rule.when, use.variables)
    except ConditionFailed as error:
        fails = "so the call is not allowed by it" if rule.verdict == "allow" else "so it counts"
        return rule.verdict != "allow", f"the condition has no answer ({error}), {fails}"
    return met, f"the condition is {str(met).lower()}"


def _people(policy: Policy, terms: Terms) -> dict[str, Any]:
    """Who may decide; without approvers in the policy, the names that its terms give."""

    def people(names: tuple[str, ...]) -> tuple[str, ...]:
        return policy.entitled(names) if policy.approvers else names

    later = tuple((step.after, people(step.by)) for step in terms.escalate) if terms.by else ()
    return {"who": people(terms.who(0)), "later": later, "veto": people(terms.veto) if terms.veto else ()}
