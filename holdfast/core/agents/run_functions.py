"""Functions that decide when a run loads its agent: its instructions, and which tools of the catalog it has.

    def instructions(customer: Context[Customer], run: RunContext) -> str:
        return f"You help {customer.name}. Today is {run.at:%A, %d %B %Y}."

    async def tools(customer: Context[Customer], bank: Resource[Bank]) -> list[str]:
        return ["balance", "transfer"] if await bank.may_transfer(customer.number) else ["balance"]

1. They run in a worker, in `load_agent`, and may do I/O. The log records what they return, as part of the agent: a
   replay and an audit read it there.
2. They run when a run of the thread begins: at the start, and again when a closed thread continues, in a fork and
   after an import. An open run keeps what they returned, also as it continues as new or a message arrives days later.
3. A parameter gets its value by its type: `Context[Model]`, `Resource[Type]`, or `RunContext`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from holdfast.core.tools.resources import resources_of
from holdfast.core.tools.signatures import hints_of, parameters_of, plain, with_location
from holdfast.core.tools.typed_context import contexts_of, read_context
from holdfast.errors import CatalogError, ToolSignatureError

INSTRUCTIONS_CHARS = 200_000
"""Maximum length of instructions that a template or a function returns, in characters."""

FUNCTION_SECONDS = 10.0
"""How long such a function may take."""


@dataclass(frozen=True)
class RunContext:
    """Facts about the run that loads its agent."""

    thread: str
    """The thread's id."""
    agent: str
    """The agent's name."""
    person: str = ""
    """The person who gave the task; empty if their identity is not proven."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """When the run requested its agent, in UTC by the server's clock; the same on every attempt."""


@dataclass(frozen=True)
class ToolSet:
    """The tools of an agent that a function selects for each run."""

    function: Callable[..., Any]
    added: tuple[str, ...] = ()
    """Names of tools that the agent's options add."""
    known: tuple[str, ...] | None = None
    """The names that the function may return; None for every tool of the catalog."""

    def add(self, names: tuple[str, ...], *, known: Iterable[str]) -> "ToolSet":
        """Return the set with tools that an option adds to the catalog and, perhaps, to this agent.

        Args:
            names: The added tools of this agent.
            known: The tools of the catalog before.
        """
        return ToolSet(self.function, (*self.added, *names), tuple(known) if self.known is None else self.known)


def check_function(
    function: Callable[..., Any], *, role: str, agent: str, model: type[BaseModel] | None, resources: Mapping[Any, Any]
) -> None:
    """Reject a function whose parameters nothing can fill in.

    Args:
        function: The function.
        role: What it decides: `instructions` or `tools`.
        agent: The agent's name.
        model: The model of the agent's context; None for no context.
        resources: The resources of the catalog, by type.

    Raises:
        CatalogError: It cannot be called; the message has its file and line, and names the parameter.
    """
    what = f"agent {agent!r}, {role}"
    try:
        hints, contexts, wanted = hints_of(function), contexts_of(function), resources_of(function)
        parameters = parameters_of(function)
    except (NameError, TypeError, ValueError, ToolSignatureError) as error:
        raise CatalogError(with_location(function, f"{what}: {error}")) from None
    for each in parameters:
        name, problem = each.name, ""
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            problem = "it is passed by name, so no *args, **kwargs or '/'"
        elif name in contexts:
            problem = _unfit(contexts[name], model)
        elif name in wanted:
            problem = "" if wanted[name] in resources else f"the catalog has no resource of type {wanted[name]!r}"
        elif hints.get(name) is not RunContext:
            problem = "annotate it with Context[Model], Resource[Type] or RunContext"
        if problem:
            raise CatalogError(with_location(function, f"{what}, parameter {name!r}: {problem}"))


def _unfit(wanted: type[BaseModel], model: type[BaseModel] | None) -> str:
    if model is None:
        return f"it wants Context[{wanted.__name__}], but the agent has no context: Agent(context={wanted.__name__})"
    if not issubclass(model, wanted):
        return f"it wants Context[{wanted.__name__}], but the context of the agent is {model.__name__}"
    return ""


def bind_function(
    function: Callable[..., Any], *, values: Mapping[str, Any] | None, run: RunContext, resources: Mapping[Any, Any]
) -> dict[str, Any]:
    """Return the keyword arguments of a function.

    Raises:
        ContextInvalid: The context does not fit the model that it wants.
    """
    names = {each.name for each in parameters_of(function)}
    bound: dict[str, Any] = {name: run for name, hint in hints_of(function).items() if hint is RunContext}
    bound |= {name: resources[kind] for name, kind in resources_of(function).items()}
    bound |= {name: read_context(kind, values or {}, more=True) for name, kind in contexts_of(function).items()}
    return {name: value for name, value in bound.items() if name in names}


def is_function(value: object) -> bool:
    """Return whether a value is a function that an agent can call."""
    return callable(value) and inspect.isroutine(plain(value))
