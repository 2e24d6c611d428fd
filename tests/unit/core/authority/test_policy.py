"""Policies: ordered rules, of which the first match decides, and the defaults if none matches."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.authority.conditions import ConditionFailed, check_condition, holds
from holdfast.core.authority.explain import explain
from holdfast.core.authority.node_policy import tool_verdict
from holdfast.core.authority.policy import (
    Approver,
    Escalation,
    Policy,
    Rule,
    Terms,
    ToolUse,
    allow,
    ask,
    deny,
    evaluate,
)
from holdfast.core.tools.effects import Effect
from tests.support.policies import CONDITIONS, POLICIES, USES, rules


def use(tool: str = "anything", effect: Effect = Effect.UNSAFE, **more: object) -> ToolUse:
    """Return a call; by default its effect is of the strictest class."""
    return ToolUse(tool=tool, effect=effect, **more)  # type: ignore[arg-type]  # fields of any kind


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [(Effect.READ, "allow")] + [(effect, "ask") for effect in Effect if effect is not Effect.READ],
)
def test_without_a_rule_reads_are_allowed_and_effects_ask(effect: Effect, verdict: str) -> None:
    """The default is safe for every class of effect."""
    assert evaluate(Policy(), use(effect=effect)).verdict == verdict


def test_the_first_match_decides_and_is_named() -> None:
    """A later rule never overrides an earlier one; the verdict names the rule that gave it."""
    policy = Policy(rules=(deny("pay_cash", reason="no trace"), allow("pay_*"), ask(effect=Effect.UNSAFE)))
    cash = evaluate(policy, use("pay_cash"))
    assert (cash.verdict, cash.rule, cash.reason) == ("deny", "deny pay_cash", "no trace")
    assert evaluate(policy, use("pay_card")).verdict == "allow"
    assert evaluate(policy, use("wipe")).rule == "ask * (unsafe)"


def test_patterns_are_case_sensitive() -> None:
    """Patterns match in the same way on every platform, because a verdict must replay."""
    assert evaluate(Policy(rules=(allow("Pay"),)), use("pay")).verdict == "ask"


def test_a_rule_may_name_an_agent_and_a_depth() -> None:
    """Sub-agents can have stricter rules than runs started by a person."""
    rule = Rule(verdict="deny", agent="rel*", depth=1)
    assert evaluate(Policy(rules=(rule,)), use(agent="releaser", depth=1)).verdict == "deny"
    assert evaluate(Policy(rules=(rule,)), use(agent="releaser", depth=0)).verdict == "ask"
    assert evaluate(Policy(rules=(rule,)), use(agent="walker", depth=2)).verdict == "ask"


@pytest.mark.parametrize(
    ("when", "arguments", "verdict"),
    [
        ("args.cents > 100000", {"cents": 100_001}, "deny"),
        ("args.cents > 100000", {"cents": 100_000}, "ask"),
        ("args.cents > 100000", {"cents": 1e6}, "deny"),
        ("args.to in ['a', 'b']", {"to": "b"}, "deny"),
        ("args.path.startsWith('/')", {"path": "etc"}, "ask"),
        ("has(args.force) && args.force", {}, "ask"),
    ],
)
def test_a_condition_reads_the_arguments(when: str, arguments: object, verdict: str) -> None:
    """A rule with a condition applies only if the condition is true."""
    assert evaluate(Policy(rules=(deny("pay", when=when),)), use("pay", arguments=arguments)).verdict == verdict


@pytest.mark.parametrize("arguments", [{}, {"cents": "many"}, None, [], {"cents": None}, {"cents": {}}])
def test_a_condition_that_cannot_be_evaluated_fails_closed(arguments: object) -> None:
    """A rule that denies or asks then applies, one that allows does not; the verdict says why."""
    call = use("pay", arguments=arguments)
    denied = evaluate(Policy(rules=(deny("pay", when="args.cents > 1"), allow())), call)
    assert denied.verdict == "deny"
    assert "the condition cannot be evaluated" in denied.rule
    assert evaluate(Policy(rules=(ask("pay", when="args.cents > 1"), allow())), call).verdict == "ask"
    assert evaluate(Policy(rules=(allow("pay", when="args.cents > 1"), deny())), call).verdict == "deny"


@pytest.mark.parametrize("when", ["tool == 'pay'", "args.to == 'b'", "args.to.matches('b')"])
def test_arguments_that_conditions_do_not_have_fail_each_condition(when: str) -> None:
    """Also one that does not read them; the verdict names them."""
    denied = evaluate(Policy(rules=(deny("pay", when=when), allow())), use("pay", arguments={"to": "\ud800"}))
    assert denied.verdict == "deny"
    assert "variable 'args'" in denied.rule


@pytest.mark.parametrize("when", ["cents > 1", "args.cents >", "nope(args)", "'", "args.x.startsWith(y)"])
def test_a_condition_that_can_never_be_evaluated_is_rejected(when: str) -> None:
    """The mistake is found when the policy is read, not at the first call."""
    with pytest.raises(ValueError, match="when"):
        ask("pay", when=when)


@given(CONDITIONS, USES)
def test_a_condition_gives_a_boolean_or_fails(when: str, call: ToolUse) -> None:
    """Any expression and any arguments give true, false or `ConditionFailed`."""
    with suppress(ConditionFailed):
        assert holds(when, call.variables) in (True, False)


@given(CONDITIONS, USES)
def test_every_call_gets_a_verdict(when: str, call: ToolUse) -> None:
    """`evaluate` is total: after an error in a condition, a denying rule applies and an allowing rule does not."""
    try:
        check_condition(when)
    except ValueError:
        return
    try:
        met: bool | None = holds(when, call.variables)
    except ConditionFailed:
        met = None
    assert evaluate(Policy(rules=(deny(when=when), allow())), call).verdict == ("allow" if met is False else "deny")
    assert evaluate(Policy(rules=(ask(when=when), allow())), call).verdict == ("allow" if met is False else "ask")
    assert evaluate(Policy(rules=(allow(when=when), deny())), call).verdict == ("allow" if met else "deny")


@given(POLICIES, USES)
def test_a_nodes_verdict_on_all_calls_of_a_tool_is_the_one_on_each(policy: Policy, call: ToolUse) -> None:
    """It is computed without the call's arguments; if a condition decides, the rules about the tool suffice."""
    verdict = tool_verdict(policy, tool=call.tool, effect=call.effect, agent=call.agent, depth=call.depth)
    if isinstance(verdict, Policy):
        assert verdict.rules[0].when
        verdict = evaluate(verdict, call)
    assert verdict == evaluate(policy, call)


@given(st.lists(rules(), max_size=6), USES)
def test_rules_after_the_first_match_change_nothing(given_rules: list[Rule], call: ToolUse) -> None:
    """Removing all rules after the deciding one gives the same verdict."""
    whole = Policy(rules=tuple(given_rules))
    tried = len(explain(whole, call).judged)
    assert evaluate(Policy(rules=whole.rules[:tried]), call) == evaluate(whole, call)


@given(POLICIES, USES)
def test_an_explanation_ends_with_the_deciding_rule(policy: Policy, call: ToolUse) -> None:
    """Only the deciding rule applies, and none before it does; without a match, the default decides."""
    explanation = explain(policy, call)
    assert explanation.verdict == evaluate(policy, call)
    assert not any(judged.applies for judged in explanation.judged[:-1])
    if explanation.judged and explanation.judged[-1].applies:
        assert explanation.verdict.rule.startswith(explanation.judged[-1].rule)
    else:
        assert len(explanation.judged) == len(policy.rules)
        assert explanation.verdict.rule.startswith("default: ")


@given(POLICIES)
def test_a_policy_survives_a_round_trip_through_json(policy: Policy) -> None:
    """A policy read back from its JSON is equal and has the same hash."""
    again = Policy.model_validate_json(policy.model_dump_json())
    assert again == policy
    assert again.hash == policy.hash


ALICE = Approver(name="alice", roles=("finance",))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"approvers": (ALICE, ALICE)}, "there twice"),
        ({"approvers": (ALICE, Approver(name="finance"))}, "a person and a role"),
        ({"approvers": (ALICE,), "terms": Terms(by=("bob",))}, "no approver or role 'bob'"),
        ({"approvers": (ALICE,), "rules": (ask(terms=Terms(veto=("bob",))),)}, "rules.0.terms"),
        ({"approvers": (ALICE,), "terms": Terms(quorum=2)}, "1 may decide, and the quorum is 2"),
        ({"approvers": (ALICE,), "signatures": "required"}, "no approver has a key"),
    ],
)
def test_a_policy_that_cannot_be_satisfied_is_rejected(fields: dict[str, object], words: str) -> None:
    """Unknown names and requirements that no approver can meet are found when the policy is created."""
    with pytest.raises(ValueError, match=words):
        Policy.model_validate(fields)


def test_each_escalation_adds_approvers() -> None:
    """The first approvers may still decide."""
    terms = Terms(by=("a",), escalate=(Escalation(after=1, by=("b",)), Escalation(after=2, by=("c",))))
    assert [terms.who(level) for level in range(3)] == [("a",), ("a", "b"), ("a", "b", "c")]
