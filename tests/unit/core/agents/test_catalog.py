"""Catalogs, and the agent that a run records."""

import re

import pytest

from holdfast import Agent, Catalog, Memory, Skill, tool
from holdfast.errors import CatalogError


@tool(effect="read")
def look() -> str:
    """Look."""
    return ""


@tool(effect="read")
def more() -> str:
    """Look again."""
    return ""


def skill(name: str, text: str = "How.") -> Skill:
    """Return a skill of that name."""
    return Skill(name, f"Use it for {name}.", {"SKILL.md": text.encode()})


def test_the_first_agent_is_the_default() -> None:
    """A start without an agent gets the first."""
    catalog = Catalog(agents=[Agent(name="a", instructions=""), Agent(name="b", instructions="")])
    assert catalog.spec(None, default_llm="m").name == "a"


def test_an_agents_own_llm_wins_over_the_workers() -> None:
    """The worker's default applies only to agents without their own LLM."""
    catalog = Catalog(agents=[Agent(name="a", instructions="", llm="mine")])
    assert catalog.spec("a", default_llm="m").llm == "mine"


def test_the_hash_covers_instructions_tools_and_limits() -> None:
    """Equal specs have one hash; a changed word, tool or limit gives another."""
    one = Catalog(agents=[Agent(name="a", instructions="x", tools=[look])]).spec("a", default_llm="m")
    same = Catalog(agents=[Agent(name="a", instructions="x", tools=[look])]).spec("a", default_llm="m")
    other = Catalog(agents=[Agent(name="a", instructions="y", tools=[look])]).spec("a", default_llm="m")
    assert one.hash == same.hash != other.hash


@pytest.mark.parametrize(
    ("agents", "tools", "words"),
    [
        ([], [], "at least one agent"),
        ([Agent(name="a", instructions=""), Agent(name="a", instructions="")], [], "two agents are named 'a'"),
        ([Agent(name="a", instructions="")], [look, look], "two tools are named 'look'"),
        ([Agent(name="a", instructions="", tools=("fly",))], [look], r"\['fly'\]; the catalog has: look"),
        ([Agent(name="a", instructions="")], [print], "decorate the function with @tool"),
        (
            [Agent(name="a", instructions="", skills=("x",))],
            [],
            r"'a' names skills that are not .*: \['x'\]; the catalog has: none",
        ),
    ],
)
def test_an_inconsistent_catalog_is_rejected(agents: list[Agent], tools: list[object], words: str) -> None:
    """The worker does not start, and the message names the fault."""
    with pytest.raises(CatalogError, match=words):
        Catalog(agents=agents, tools=tools)  # type: ignore[arg-type]


def test_an_unknown_agent_error_lists_the_agents() -> None:
    """The list helps to correct a misspelt name."""
    with pytest.raises(CatalogError, match="no agent named 'x'; this worker's catalog has: a"):
        Catalog(agents=[Agent(name="a", instructions="")]).spec("x", default_llm="m")


def test_an_agent_names_its_skills_or_has_them_all() -> None:
    """`skills=None` means every skill of the catalog; the spec has name, description and the address of each file."""
    agents = [
        Agent(name="all", instructions=""),
        Agent(name="one", instructions="", skills=("b",)),
        Agent(name="none", instructions="", skills=()),
    ]
    catalog = Catalog(agents=agents, skills=[skill("a"), skill("b")])
    assert [each.name for each in catalog.spec("all", default_llm="m").skills] == ["a", "b"]
    assert [each.name for each in catalog.spec("one", default_llm="m").skills] == ["b"]
    assert catalog.spec("none", default_llm="m").skills == ()
    assert catalog.skills_of(None) == catalog.skills_of("all")


def test_the_hash_covers_the_content_of_skills() -> None:
    """A changed byte in a file of the agent's skills changes the hash; other skills have no effect."""

    def spec_hash(*skills: Skill) -> str:
        agent = Agent(name="a", instructions="", skills=("a",))
        return Catalog(agents=[agent], skills=skills).spec("a", default_llm="m").hash

    assert spec_hash(skill("a")) == spec_hash(skill("a"), skill("b")) != spec_hash(skill("a", "Other."))


def test_two_skills_of_one_name_are_rejected() -> None:
    """Otherwise the agent's skill would depend on their order."""
    with pytest.raises(CatalogError, match="two skills are named 'a'"):
        Catalog(agents=[Agent(name="a", instructions="")], skills=[skill("a"), skill("a")])


def test_a_path_in_place_of_a_skill_is_rejected() -> None:
    """The error says how to load a skill from its path."""
    with pytest.raises(CatalogError, match=r"'skills' is not a skill; read skills with load_skills"):
        Catalog(agents=[Agent(name="a", instructions="")], skills=["skills"])  # type: ignore[list-item]


def test_an_agent_may_have_a_hundred_skills() -> None:
    """More are rejected, with the remedy."""
    skills = [skill(f"s{number}") for number in range(101)]
    with pytest.raises(
        CatalogError, match=r"would have 101, 101 .*; select the skills that it needs with Agent\(skills"
    ):
        Catalog(agents=[Agent(name="a", instructions="")], skills=skills)


def tools_by_agent(catalog: Catalog) -> dict[str, list[str]]:
    """Return the tools of each agent."""
    return {name: [each.name for each in catalog.spec(name, default_llm="m").tools] for name in catalog.agents}


AGENTS = [
    Agent(name="bringing", instructions="", tools=[look]),
    Agent(name="named", instructions="", tools=("look",)),
    Agent(name="none", instructions="", tools=()),
]


def test_a_tool_is_offered_to_agents_that_have_tools() -> None:
    """The worker's own tools come last; an agent without tools gets none of them."""
    catalog = Catalog(agents=AGENTS, tools=[look], skills=[skill("a")]).offering(more)
    assert tools_by_agent(catalog) == {"bringing": ["look", "more"], "named": ["look", "more"], "none": []}
    assert list(catalog.skills) == ["a"]
    assert tools_by_agent(Catalog(agents=AGENTS[2:]).offering(more)) == {"none": []}


def test_a_tool_for_certain_agents_is_offered_only_to_them() -> None:
    """An agent named by the tool gets it even without other tools; one that has tools does not."""
    agents = [*AGENTS, Agent(name="skilled", instructions="", tools=(), memory=Memory(workspace_skills=True))]
    catalog = Catalog(agents=agents, tools=[look]).offering(more, to=lambda agent: agent.memory.workspace_skills)
    assert tools_by_agent(catalog) == {"bringing": ["look"], "named": ["look"], "none": [], "skilled": ["more"]}


def test_a_catalogs_own_tool_is_kept() -> None:
    """The worker does not replace a user's tool that has the same name as one of its own."""
    catalog = Catalog(agents=AGENTS, tools=[look])
    assert catalog.offering(look, to=lambda agent: True) is catalog


def test_errors_about_a_tool_have_its_source_location() -> None:
    """An error about a catalog's tool gives file and line."""
    place = f"{__file__}:{look.function.__code__.co_firstlineno}"
    clerk = Agent(name="a", instructions="")
    with pytest.raises(CatalogError, match=re.escape(f"two tools are named 'look' ({place}, {place})")):
        Catalog(agents=[clerk], tools=[look, look])
    with pytest.raises(CatalogError, match=re.escape(f"{place}: <function look")):
        Catalog(agents=[clerk], tools=[look.function])  # type: ignore[list-item]
    with pytest.raises(CatalogError, match=re.escape(f"without arguments ({__file__}:")):
        Catalog(agents=[clerk.model_copy(update={"tools": ("find",), "verify": ("find",)})], tools=[find])
    with pytest.raises(CatalogError, match=re.escape(f"{__file__}:") + r"\d+: tool 'huge' cannot be recorded"):
        Catalog(agents=[clerk], tools=[huge])


@tool(effect="read")
def find(what: str) -> str:
    """Find something."""
    return what


@tool(effect="read")
def huge(number: int = 2**60) -> str:
    """Have a default value that no run can record."""
    return str(number)
