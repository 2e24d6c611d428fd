"""Catalogs and the agent a run records."""

import pytest

from holdfast import Agent, Catalog, tool
from holdfast.errors import CatalogError


@tool(effect="read")
def look() -> str:
    """Look."""
    return ""


def test_an_agent_names_its_tools_or_has_them_all() -> None:
    """`tools=None` means every tool of the catalog, in its order."""
    catalog = Catalog(
        agents=[Agent(name="all", instructions=""), Agent(name="none", instructions="", tools=())], tools=[look]
    )
    assert [each.name for each in catalog.spec("all", default_llm="m").tools] == ["look"]
    assert catalog.spec("none", default_llm="m").tools == ()


def test_the_first_agent_is_the_default() -> None:
    """Who names no agent gets the first."""
    catalog = Catalog(agents=[Agent(name="a", instructions=""), Agent(name="b", instructions="")])
    assert catalog.spec(None, default_llm="m").name == "a"


def test_an_agents_own_llm_wins_over_the_workers() -> None:
    """The worker's default is only for agents that name none."""
    catalog = Catalog(agents=[Agent(name="a", instructions="", llm="mine")])
    assert catalog.spec("a", default_llm="m").llm == "mine"


def test_the_hash_tells_agents_apart_by_what_they_are_told_and_allowed() -> None:
    """Equal specs have one hash; another word, tool or limit gives another."""
    one = Catalog(agents=[Agent(name="a", instructions="x")], tools=[look]).spec("a", default_llm="m")
    same = Catalog(agents=[Agent(name="a", instructions="x")], tools=[look]).spec("a", default_llm="m")
    other = Catalog(agents=[Agent(name="a", instructions="y")], tools=[look]).spec("a", default_llm="m")
    assert one.hash == same.hash != other.hash


@pytest.mark.parametrize(
    ("agents", "tools", "words"),
    [
        ([], [], "at least one agent"),
        ([Agent(name="a", instructions=""), Agent(name="a", instructions="")], [], "two agents are named 'a'"),
        ([Agent(name="a", instructions="")], [look, look], "two tools are named 'look'"),
        ([Agent(name="a", instructions="", tools=("fly",))], [look], r"not in the catalog: \['fly'\] \(look\)"),
        ([Agent(name="a", instructions="")], [print], "decorate the function with @tool"),
    ],
)
def test_a_catalog_that_does_not_fit_together_is_refused(agents: list[Agent], tools: list[object], words: str) -> None:
    """The worker does not start, and the message says what is wrong."""
    with pytest.raises(CatalogError, match=words):
        Catalog(agents=agents, tools=tools)  # type: ignore[arg-type]


def test_an_unknown_agent_is_answered_with_those_there_are() -> None:
    """A typing error is easy to mend."""
    with pytest.raises(CatalogError, match="no agent named 'x'; this worker's catalog has: a"):
        Catalog(agents=[Agent(name="a", instructions="")]).spec("x", default_llm="m")
