"""Explanations of verdicts: each rule up to the one that decides, and the people who may decide on a request."""

from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.authority.conditions import ConditionFailed, holds
from holdfast.core.authority.policy import Policy, Rule, Terms, ToolUse, Verdict, evaluate
from holdfast.core.base.models import Frozen


class JudgedRule(Frozen):
    """One rule, and why it applies or does not."""

    number: int
    """Index of the rule in the policy, from 0."""
    rule: str
    applies: bool
    why: str


class Explanation(Frozen):
    """A policy's verdict on one call, and the reasons."""

    verdict: Verdict
    judged: tuple[JudgedRule, ...]
    """The rules that were tried, in order; the last one decides, if it applies."""
    who: tuple[str, ...] = ()
    """For `ask`: the approvers who may decide from the start; empty for anybody."""
    later: tuple[tuple[float, tuple[str, ...]], ...] = ()
    """For `ask`: additional approvers, with the seconds after which they may decide."""
    veto: tuple[str, ...] = ()
    """For `ask`: additional approvers who may only deny."""

    def view(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        fields = self.model_dump(mode="json", exclude={"verdict", "later"})
        fields |= {"later": [{"after": after, "who": list(who)} for after, who in self.later]}
        return {**self.verdict.model_dump(mode="json"), **fields}


def explain(policy: Policy, use: ToolUse) -> Explanation:
    """Evaluate a tool call, and explain how the verdict comes about."""
    judged: list[JudgedRule] = []
    for number, rule in enumerate(policy.rules):
        applies, why = _judge(rule, use)
        judged.append(JudgedRule(number=number, rule=rule.label, applies=applies, why=why))
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
    if rule.hours:
        return False, f"it says when the call starts ({rule.hours.words}), not whether"
    if not rule.when:
        return True, "it matches"
    try:
        met = holds(rule.when, use.variables, use.budget)
    except ConditionFailed as error:
        fails = "so the rule does not apply" if rule.verdict == "allow" else "so the rule applies"
        return rule.verdict != "allow", f"the condition cannot be evaluated ({error}), {fails}"
    return met, f"the condition is {str(met).lower()}"


def _people(policy: Policy, terms: Terms) -> dict[str, Any]:
    """Return the people who may decide; if the policy lists no approvers, the names in its terms."""

    def people(names: tuple[str, ...]) -> tuple[str, ...]:
        return policy.entitled(names) if policy.approvers else names

    later = tuple((step.after, people(step.by)) for step in terms.escalate) if terms.by else ()
    return {"who": people(terms.who(0)), "later": later, "veto": people(terms.veto) if terms.veto else ()}
