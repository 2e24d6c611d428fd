"""Definitions that people write: unknown fields and useless patterns are rejected; decoding stays lenient."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from holdfast import (
    Agent,
    Amounts,
    Approver,
    Budget,
    Confinement,
    Escalation,
    Extensions,
    Gateway,
    Limits,
    Memory,
    NewMemory,
    Policy,
    Rule,
    Terms,
    allow,
    ask,
    deny,
)
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.patterns import can_match
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.base.models import Definition
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.tools.effects import Effect
from holdfast.gateway.bodies import read_body
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.routes.forks import ForkBody

MISSPELT: list[tuple[type[Definition], dict[str, Any], str, str]] = [
    (Agent, {"name": "a", "instructions": "x", "polcy": Policy()}, "polcy", "policy"),
    (Agent, {"name": "a", "instructions": "x", "tool": ("look",)}, "tool", "tools"),
    (Policy, {"rule": (deny(),)}, "rule", "rules"),
    (Terms, {"quorums": 2}, "quorums", "quorum"),
    (Limits, {"max_step": 3}, "max_step", "max_steps"),
    (Budget, {"usd": "1", "step": 5}, "step", "steps"),
    (Amounts, {"usd": "1", "token": 5}, "token", "tokens"),
    (Memory, {"file": 3}, "file", "files"),
    (Rule, {"verdict": "deny", "agents": "x"}, "agents", "agent"),
    (Approver, {"name": "alice", "role": ("finance",)}, "role", "roles"),
    (Gateway, {"name": "hooks", "key": ()}, "key", "keys"),
    (Escalation, {"after": 1, "by": ("a",), "aftr": 2}, "aftr", "after"),
    (Extensions, {"moste": None}, "moste", "most"),
    (NewMemory, {"scope": "global", "text": "x", "trust": "person", "expires": None}, "expires", "expires_at"),
    (Confinement, {"process": 8}, "process", "processes"),
    (AssistantMessage, {"contents": "x"}, "contents", "content"),
    (Usage, {"prompt_token": 1}, "prompt_token", "prompt_tokens"),
]


@pytest.mark.parametrize(("kind", "fields", "wrong", "right"), MISSPELT, ids=lambda it: getattr(it, "__name__", ""))
def test_an_unknown_field_is_rejected_with_the_nearest_one(
    kind: type[Definition], fields: dict[str, Any], wrong: str, right: str
) -> None:
    """A misspelt right, limit or rule is an error that names the intended field."""
    with pytest.raises(ValidationError, match=f"has no field '{wrong}'; did you mean '{right}'"):
        kind(**fields)


def test_a_field_of_another_framework_is_rejected_with_all_fields() -> None:
    """If no field has a similar name, the message lists all fields."""
    with pytest.raises(ValidationError, match=r"Agent has no field 'model'; its fields are name, instructions, .*llm"):
        Agent(name="a", instructions="x", model="gpt-5")  # type: ignore[call-arg]


def test_an_unknown_field_in_a_mapping_is_rejected() -> None:
    """The same person writes the mappings inside a definition, so all problems are reported at once."""
    policy: Any = {"rules": [{"verdict": "deny", "tol": "pay"}], "defaults": "deny"}
    with pytest.raises(ValidationError) as caught:
        Agent(name="a", instructions="x", policy=policy)
    assert [each["loc"] for each in caught.value.errors()] == [("policy", "rules", 0, "tol"), ("policy", "defaults")]
    assert "Rule has no field 'tol'; did you mean 'tool'" in str(caught.value)


@pytest.mark.parametrize(("kind", "fields", "wrong", "right"), MISSPELT, ids=lambda it: getattr(it, "__name__", ""))
def test_decoding_ignores_unknown_fields(
    kind: type[Definition], fields: dict[str, Any], wrong: str, right: str
) -> None:
    """An older worker can decode what a newer release wrote, at every level."""
    extra = {name: value for name, value in fields.items() if name != wrong}
    extra |= {"keys": ("ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg",)} if kind is Gateway else {}
    extra |= {"usd": "1"} if kind is Amounts else {}
    assert "of_a_newer_release" not in kind.model_validate({**extra, "of_a_newer_release": 1}).model_dump()


def test_a_recorded_policy_decodes_with_any_patterns() -> None:
    """A policy that an earlier release recorded keeps its verdicts and its hash."""
    values = {
        "rules": [{"verdict": "deny", "tool": "pay ", "agent": "", "of_a_newer_release": 1}, {"verdict": "allow"}]
    }
    spec = {"name": "a", "instructions": "", "tools": [], "policy": values, "llm": "x", "limits": {}}
    policy = AgentSpec.model_validate(spec).policy
    assert policy.rules[0].tool == "pay "
    assert policy.hash == Policy.model_validate_json(policy.model_dump_json()).hash
    assert evaluate(policy, ToolUse(tool="pay", effect=Effect.UNSAFE, agent="a")).verdict == "allow"
    assert Policy(rules=policy.rules).hash == policy.hash


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        ("pay ", "write 'pay'"),
        (" pay", "write 'pay'"),
        ("pay\n", "write 'pay'"),
        ("pay\u00a0", "write 'pay'"),
        ("p\u200bay", "write 'pay'"),
        ("\ufeffpay", "write 'pay'"),
        ("pay\u202e", "write 'pay'"),
        ("\u201cpay\u201d", "write 'pay'"),
        ("'pay'", "write 'pay'"),
        ("`pay`", "write 'pay'"),
        ("pay()", "write 'pay'"),
        ("pay(cents > 5)", "write 'pay'"),
        ("^pay$", "write 'pay'"),
        ("/pay/", "write 'pay'"),
        ("\uff50\uff41\uff59", "write 'pay'"),
        ("pay.*", "write 'pay*'"),
        (".*", "write '*'"),
        (" * ", "write '*'"),
        ("pay|look", "write a rule for each of 'pay', 'look'"),
        ("(pay|look)", "write a rule for each of 'pay', 'look'"),
        ("{pay,look}", "write a rule for each of 'pay', 'look'"),
        ("pay, look", "write a rule for each of 'pay', 'look'"),
        ("pay;look", "write a rule for each of 'pay', 'look'"),
        ("pay or look", "write a rule for each of 'pay', 'look'"),
        ("pay look_*", "write a rule for each of 'pay', 'look_*'"),
        ("", "write '*' for every tool"),
        ("  ", "write '*' for every tool"),
        ("pay+", "such as 'pay' or 'pay_"),
        ("pay_{in,out}", "such as 'pay' or 'pay_"),
        (r"pay\*", "such as 'pay' or 'pay_"),
        ("functions.pay", "such as 'pay' or 'pay_"),
        ("\u0440\u0430\u0443", "such as 'pay' or 'pay_"),
        ("[pay", "such as 'pay' or 'pay_"),
        ("[\u00e9]", "such as 'pay' or 'pay_"),
        ("x" * 65, "such as 'pay' or 'pay_"),
    ],
)
def test_a_pattern_that_no_tool_can_match_is_rejected(pattern: str, instead: str) -> None:
    """A rule that can match nothing protects nothing; the message shows the pattern in ASCII and a correction."""
    for define in (allow, ask, deny):
        with pytest.raises(ValidationError) as caught:
            define(pattern)
        (problem,) = caught.value.errors()
        assert problem["loc"] == ("tool",)
        assert ascii(pattern[:60])[:-1] in problem["msg"]
        assert instead in problem["msg"]


@pytest.mark.parametrize(
    "pattern", ["pay", "Pay", "*", "pay_*", "p?y", "[pq]ay", "[!a-z]*", "[]a]", "-x", "?" * 64, "a" + "*" * 90]
)
def test_a_pattern_that_some_tool_can_match_is_accepted(pattern: str) -> None:
    """Shell patterns of every form are allowed."""
    assert deny(pattern).tool == pattern


def test_names_of_agents_may_have_dots() -> None:
    """Patterns of agents follow the grammar of agents' names."""
    assert can_match("desk.v2", "agent")
    with pytest.raises(ValidationError, match=r"no agent can match the pattern 'a\|b'"):
        Rule(verdict="deny", agent="a|b")


def test_a_mapping_with_a_useless_pattern_is_rejected() -> None:
    """Rules given as mappings are checked like others."""
    rules: Any = ({"verdict": "deny", "tool": "pay|look"},)
    with pytest.raises(ValidationError, match="no tool can match the pattern"):
        Policy(rules=rules)


@pytest.mark.parametrize(
    ("rule", "words"),
    [(b'{"verdict": "deny", "tool": "pay "}', "write 'pay'"), (b'{"verdict": "deny", "tol": "pay"}', "rules.0.tol")],
)
def test_a_forks_policy_over_http_is_checked_like_a_definition(rule: bytes, words: str) -> None:
    """A policy in a request body is written by a person: useless patterns and unknown fields are rejected."""
    with pytest.raises(HTTPProblem, match=words):
        read_body(b'{"policy": {"rules": [' + rule + b"]}}", ForkBody)


@pytest.mark.parametrize("changes", [None, {}, {"max_steps": 3}, {"max_steps": "unchecked"}])
def test_a_copy_is_the_one_that_pydantic_makes(changes: dict[str, Any] | None) -> None:
    """It has the same fields, and the same ones count as set."""
    limits = Limits(llm_timeout=5)
    copied, expected = limits.model_copy(update=changes), BaseModel.model_copy(limits, update=changes)
    assert type(copied) is Limits
    assert vars(copied) == vars(expected)
    assert copied.model_fields_set == expected.model_fields_set
    assert copied == expected
