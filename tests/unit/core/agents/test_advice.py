"""Advice on a catalog: rules that match nothing in it, and tools without descriptions."""

import json
from pathlib import Path

import pytest

from holdfast import Agent, Catalog, InMemoryArtifacts, InMemoryMemories, InMemoryThreads, Memory, Policy, Rule, tool
from holdfast.activities.builtin_tools.offer import with_builtin_tools
from holdfast.cli.session import Session
from holdfast.cli.verbs.policies import check
from holdfast.config.settings import Settings
from holdfast.core.agents.advice import BUILTIN_TOOLS, advice_on, description_advice, rule_advice
from holdfast.core.authority.policy import allow, ask, deny
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.doctor.project import advice_checks


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay.

    Args:
        cents: How much.
    """
    return f"{cents} paid"


def catalog(*rules: Rule) -> Catalog:
    """A catalog with one agent and one tool."""
    return Catalog(agents=[Agent(name="desk", instructions="", policy=Policy(rules=rules), tools=[pay])])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (deny("Pay"), "rules[0] (deny Pay) matches no tool of the catalog; did you mean 'pay'?"),
        (deny("pya"), "rules[0] (deny pya) matches no tool of the catalog; did you mean 'pay'?"),
        (ask("publish_*"), "rules[0] (ask publish_*) matches no tool of the catalog"),
        (allow("pay", effect=Effect.READ), "no tool of the catalog with the effect read: pay is unsafe"),
        (Rule(verdict="deny", tool="pay", agent="dask"), "matches no agent of the catalog; did you mean 'desk'?"),
        (Rule(verdict="deny", tool="pay", depth=1), "matches no run: it is for sub-agents"),
    ],
)
def test_a_rule_that_matches_nothing_is_named(rule: Rule, words: str) -> None:
    """The advice has the rule's source location and label, and suggests the closest name."""
    (advice,) = rule_advice(catalog(rule))
    assert words in advice


@pytest.mark.parametrize("rule", [deny("pay"), ask("p*"), allow(), deny("remember_always"), allow(effect=Effect.READ)])
def test_a_rule_that_matches_something_is_not_named(rule: Rule) -> None:
    """Built-in tools count even if no agent has them today, and a rule for all tools is never useless."""
    assert rule_advice(catalog(rule)) == []


def test_the_built_in_tools_are_known_with_their_effects() -> None:
    """The list has every tool that a worker adds."""
    memory = Memory(semantic=True, progress=True, learn=True, workspace_skills=True)
    everything = Agent(name="a", instructions="", memory=memory, dormancy=True, refines=True, subagents=("a",))
    offered = with_builtin_tools(
        Catalog(agents=[everything]),
        artifacts=InMemoryArtifacts(),
        memories=InMemoryMemories(),
        threads=InMemoryThreads(),
        secrets=NO_SECRETS,
    )
    built_in = {name: each.spec.effect for name, each in offered.tools.items()}
    assert built_in == {name: effect for name, effect in BUILTIN_TOOLS.items() if name != "final_result"}
    assert description_advice(offered) == []


def test_a_parameter_without_description_is_named() -> None:
    """The LLM writes arguments by descriptions; a parameter without one is no error, but is reported."""

    @tool(effect="read", description="Nothing said.")
    def bare(a: int, b: str) -> str:
        return f"{a}{b}"

    def half(a: int, b: str) -> str:
        return f"{a}{b}"

    half.__doc__ = "Half of it.\n\nArgs:\n    a: The first one."

    tools = [bare, tool(effect="read")(half), pay]
    advice = advice_on(Catalog(agents=[Agent(name="a", instructions="", tools=tools)]))
    assert [each.partition(";")[0] for each in advice] == [
        "tool 'bare' has no description of its parameters a, b",
        "tool 'half' has no description of its parameter b",
    ]


def test_tools_of_no_agent_are_named_if_an_agent_has_none() -> None:
    """Before 0.3.0, that agent had them all; a tool that only earlier runs use is fine beside agents with tools."""
    (advice,) = advice_on(Catalog(agents=[Agent(name="a", instructions="")], tools=[pay]))
    assert advice == "no agent has pay, and a has no tools: give an agent its tools with Agent(tools=[…])"

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return ""

    assert advice_on(Catalog(agents=[Agent(name="a", instructions="", tools=[look])], tools=[pay])) == []


doubtful = catalog(deny("pya"))


def test_doctor_names_probable_mistakes() -> None:
    """A rule that decides nothing weakens the profile; `doctor` never imports a catalog that it must not."""
    settings = Settings.from_env({"HOLDFAST_CATALOG": f"{__name__}:doubtful"}, root=Path.cwd())
    (check,) = advice_checks(settings, "")
    assert (check.name, check.status) == ("rule", "weak")
    assert "did you mean 'pay'" in check.detail
    assert advice_checks(settings, f"{__name__}:doubtful") == []


async def test_policy_check_compares_with_a_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`policy check --catalog` names the rules that match nothing in it, and the file remains valid."""
    (file := tmp_path / "p.yaml").write_text("rules: [{deny: pya}, {ask: pay}]")
    session = Session({}, workflows=list, as_json=True, debug=False)
    assert await check(session, file, f"{__name__}:doubtful") == 0
    actual = json.loads(capsys.readouterr().out)
    assert actual["warnings"] == ["rules[0] (deny pya) matches no tool of the catalog; did you mean 'pay'?"]
