"""Agents that list tools and agents themselves, and names that are no ids."""

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import Agent, Catalog, Policy, Tool, deny, tool
from holdfast.client.start_options import StartOptions
from holdfast.errors import CatalogError


@tool(effect="read")
def look() -> str:
    """Look."""
    return ""


@tool(effect="read")
def more() -> str:
    """Look again."""
    return ""


@tool(name="look", effect="read")
def impostor() -> str:
    """Look elsewhere."""
    return ""


def tools_of(catalog: Catalog, agent: str) -> list[str]:
    """Return the names of the tools that a run of the agent records."""
    return [each.name for each in catalog.spec(agent, default_llm="m").tools]


def test_an_agent_has_the_tools_that_it_lists() -> None:
    """By object or by name, in its order and each once; without `tools=` it has none, whatever the catalog has."""
    agents = [
        Agent(name="objects", instructions="", tools=[more, look, more]),
        Agent(name="mixed", instructions="", tools=("look", more)),
        Agent(name="none", instructions=""),
    ]
    catalog = Catalog(agents=agents, tools=[look])
    assert (tools_of(catalog, "objects"), tools_of(catalog, "mixed")) == (["more", "look"], ["look", "more"])
    assert tools_of(catalog, "none") == []


def test_a_catalog_collects_what_its_agents_bring() -> None:
    """A sub-agent that is also listed or shared is one agent, and a run records the same spec as with names."""
    deep = Agent(name="deep", instructions="", tools=[more])
    middle = Agent(name="middle", instructions="", subagents=[deep])
    top = Agent(name="top", instructions="", tools=[look], verify=[look], subagents=[middle, deep, "top"])
    catalog = Catalog(agents=[top, middle])
    assert list(catalog.agents) == ["top", "middle", "deep"]
    assert list(catalog.tools) == ["look", "more"]
    named = [
        Agent(name="top", instructions="", tools=["look"], verify=["look"], subagents=["middle", "deep", "top"]),
        Agent(name="middle", instructions=""),
        Agent(name="deep", instructions=""),
    ]
    assert catalog.spec("top", default_llm="m") == Catalog(agents=named, tools=[look]).spec("top", default_llm="m")


def test_a_policy_for_all_governs_collected_agents() -> None:
    """A copy of a catalog keeps the agents that were given as objects, and changes them like the others."""
    nothing = Policy(rules=(deny("*"),))
    top = Agent(name="top", instructions="", subagents=[Agent(name="deep", instructions="", tools=[look])])
    governed = Catalog(agents=[top]).governed_by(nothing)
    assert [each.policy for each in governed.agents.values()] == [nothing, nothing]
    assert tools_of(governed, "deep") == ["look"]


@pytest.mark.parametrize(
    ("agents", "tools", "words"),
    [
        ([Agent(name="a", instructions="", tools=[look, impostor])], [], "two different tools are named 'look'"),
        ([Agent(name="a", instructions="", tools=[impostor])], [look], r"test_references.py:\d+.*: rename one of them"),
        (
            [Agent(name="a", instructions="", subagents=[Agent(name="a", instructions="other")])],
            [],
            "two different agents are named 'a'",
        ),
        (
            [Agent(name="Refund agent", instructions=""), Agent(name="refund-agent", instructions="")],
            [],
            "two agents are named 'refund-agent'",
        ),
    ],
)
def test_two_objects_of_one_name_are_refused(agents: list[Agent], tools: list[Tool], words: str) -> None:
    """Otherwise the policy's verdict on one tool or agent would apply to another one."""
    with pytest.raises(CatalogError, match=words):
        Catalog(agents=agents, tools=tools)


@pytest.mark.parametrize(
    ("name", "identifier", "title"),
    [
        ("Refund agent", "refund-agent", "Refund agent"),
        ("Bücher & Straßen", "bucher-strassen", "Bücher & Straßen"),
        ("Refund.Agent-2", "Refund.Agent-2", ""),
    ],
)
def test_a_name_that_is_no_id_is_the_title(name: str, identifier: str, title: str) -> None:
    """An id stays as it is; lookups accept the name as written, too."""
    agent = Agent(name=name, instructions="")
    assert (agent.name, agent.title) == (identifier, title)
    catalog = Catalog(agents=[agent, Agent(name="boss", instructions="", subagents=[name])])
    assert catalog.spec(name, default_llm="m").name == identifier
    assert catalog.spec("boss", default_llm="m").subagents == (identifier,)
    assert StartOptions(agent=name).agent == identifier


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "gives no id"),
        ({"name": "退款 agent"}, r"write the id as the name.*title='退款 agent'"),
        ({"name": "\u0440ayments"}, "gives no id"),  # the first letter is Cyrillic
        ({"name": "x" * 65}, "gives no id"),
        ({"name": "x y" * 100}, "up to 100 printable characters"),
        ({"name": "pay\nagent"}, "printable characters"),
        ({"name": "pay\u202etnega"}, "printable characters"),
        ({"title": "pay\x1b[2J"}, "one line of printable characters"),
        ({"tools": None}, r"tools=None is not a list.*tools=\[…\]"),
        ({"tools": "look"}, r"'look' is not a list; write tools=\[…\]"),
        ({"tools": look}, r"is not a list; write tools=\[…\]"),
        ({"tools": [look.function]}, r"test_references.py:\d+: .* is not a tool; decorate the function with @tool"),
        ({"subagents": [look]}, "is not an agent"),
        ({"subagents": Agent(name="b", instructions="")}, r"write subagents=\[…\]"),
    ],
)
def test_what_an_agent_lists_is_checked_at_once(fields: dict[str, Any], words: str) -> None:
    """The error arises where the agent is defined, and says what to write; no two names look the same."""
    with pytest.raises(ValidationError, match=words):
        Agent(**{"name": "a", "instructions": "", **fields})
