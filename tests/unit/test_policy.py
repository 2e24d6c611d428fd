"""Policies: ordered rules, the first match decides, and what holds where none matches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.effects import Effect
from holdfast.policy import Policy, Rule, allow, ask, deny, evaluate

RULES = st.builds(
    Rule,
    verdict=st.sampled_from(["allow", "ask", "deny"]),
    tool=st.sampled_from(["*", "read_*", "pay", "p?y"]),
    effect=st.none() | st.sampled_from(list(Effect)),
)
TOOLS = st.sampled_from(["read_file", "pay", "wipe"])
EFFECTS = st.sampled_from(list(Effect))


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [(Effect.READ, "allow")] + [(effect, "ask") for effect in Effect if effect is not Effect.READ],
)
def test_without_a_rule_reads_are_allowed_and_effects_ask(effect: Effect, verdict: str) -> None:
    """The default is safe for every class of effect."""
    assert evaluate(Policy(), "anything", effect).verdict == verdict


def test_the_first_match_decides_and_is_named() -> None:
    """A later rule never overrides an earlier one; the verdict names the rule that gave it."""
    policy = Policy(rules=(deny("pay_cash", reason="no trace"), allow("pay_*"), ask(effect=Effect.UNSAFE)))
    cash = evaluate(policy, "pay_cash", Effect.UNSAFE)
    assert (cash.verdict, cash.rule, cash.reason) == ("deny", "deny pay_cash", "no trace")
    assert evaluate(policy, "pay_card", Effect.UNSAFE).verdict == "allow"
    assert evaluate(policy, "wipe", Effect.UNSAFE).rule == "ask * (unsafe)"


def test_patterns_are_case_sensitive() -> None:
    """On every platform alike: a verdict must replay."""
    assert evaluate(Policy(rules=(allow("Pay"),)), "pay", Effect.UNSAFE).verdict == "ask"


@given(st.lists(RULES, max_size=6), TOOLS, EFFECTS)
def test_rules_after_the_first_match_change_nothing(rules: list[Rule], tool: str, effect: Effect) -> None:
    """Cutting a policy off after the first rule that matches gives the same verdict."""
    whole = evaluate(Policy(rules=tuple(rules)), tool, effect)
    first = next((index for index, rule in enumerate(rules) if rule.matches(tool, effect)), len(rules))
    assert evaluate(Policy(rules=tuple(rules[: first + 1])), tool, effect) == whole


@given(st.lists(RULES, max_size=6))
def test_a_policy_survives_its_own_json(rules: list[Rule]) -> None:
    """What is recorded is what was meant."""
    policy = Policy(rules=tuple(rules))
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
