"""Collects what a catalog is made of, each thing under one name: what it lists, and the tools and sub-agents that its
agents bring into it as objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from holdfast.core.agents.agent import Agent
from holdfast.core.agents.middleware import Middleware
from holdfast.core.agents.names import names_of
from holdfast.core.agents.providers import Provider
from holdfast.core.agents.run_functions import ToolSet
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.signatures import source_location
from holdfast.errors import CatalogError

_T = TypeVar("_T")


def tool_objects(agents: Iterable[Agent]) -> Iterator[Tool]:
    """Yield the tools that agents give as objects, in their order."""
    for agent in agents:
        yield from (each for each in (*agent.listed_tools, *agent.verify) if isinstance(each, Tool))


def agent_objects(agents: Iterable[Agent]) -> Iterator[Agent]:
    """Yield the sub-agents that agents give as objects, and theirs, each object once."""
    seen: set[int] = set()
    level = list(agents)
    while level:
        found = {id(each): each for agent in level for each in agent.subagents if isinstance(each, Agent)}
        level = [each for key, each in found.items() if key not in seen]
        seen |= found.keys()
        yield from level


def by_name(agent: Agent) -> Agent:
    """Return the agent with names in place of objects, which the catalog has."""
    names = {"verify": agent.verifier_names, "subagents": agent.subagent_names}
    if not isinstance(agent.tools, ToolSet):
        names["tools"] = agent.tool_names
    changes = {field: named for field, named in names.items() if named != getattr(agent, field)}
    return agent.model_copy(update=changes) if changes else agent


def check_named(agent: Agent, kind: str, named: Iterable[str] | None, available: Iterable[str]) -> None:
    """Reject an agent that names tools or skills that are not in the catalog."""
    known = list(available)
    if missing := [name for name in named or () if name not in known]:
        listed = ", ".join(known) or "none"
        raise CatalogError(
            f"agent {agent.name!r} names {kind} that are not in the catalog: {missing}; the catalog has: {listed}"
        )


def checked_middleware(
    middleware: Iterable[Middleware | type[Middleware]], resources: Mapping[Any, Provider]
) -> tuple[Middleware | type[Middleware], ...]:
    """Reject an object that is not middleware, and a class without a resource of that type."""
    layers = tuple(middleware)
    for each in layers:
        if isinstance(each, type) and issubclass(each, Middleware):
            if each not in resources:
                raise CatalogError(
                    f"middleware {each.__name__}: no resource of that type; add a provider of it to "
                    f"Catalog(resources=[…]), or pass an object: {each.__name__}()"
                )
        elif not isinstance(each, Middleware):
            raise CatalogError(f"{each!r} is not middleware; derive its class from holdfast.Middleware")
    return layers


def unique_by_name(kind: str, entries: Iterable[tuple[str, _T]], *, objects: Iterable[_T] = ()) -> dict[str, _T]:
    """Return entries of a catalog by name, and those that its agents add as objects.

    Args:
        kind: The kind of entry, for messages.
        entries: What the catalog lists, each with its name; no two have the same.
        objects: Those of agents, which may have the same objects again.

    Raises:
        CatalogError: Two different entries have the same name.
    """
    unique: dict[str, _T] = {}
    for name, entry in entries:
        if name in unique:
            raise CatalogError(f"two {kind}s are named {name!r}{source_locations(unique[name], entry)}")
        unique[name] = entry
    for entry in objects:
        (name,) = names_of([entry])
        if (first := unique.setdefault(name, entry)) is not entry:
            raise CatalogError(
                f"two different {kind}s are named {name!r}{source_locations(first, entry)}: rename one of them, or "
                "use one object everywhere"
            )
    return unique


def source_locations(*things: object) -> str:
    """Return the source locations of the tools among these, to append to a message; empty if there are none."""
    found = [source_location(thing.function) for thing in things if isinstance(thing, Tool)]
    return f" ({', '.join(found)})" if any(found) else ""
