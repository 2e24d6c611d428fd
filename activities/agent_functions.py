"""An agent as one run has it: its typed context, checked, and what its functions decide for the run.

1. A context that does not fit the agent's model ends the run: only another start can give another one.
2. A function may raise because something is unavailable, so it is called again. If it keeps failing, or returns what
   no agent can have, the run is blocked: `retry` calls it again.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.tool_calls.tool_functions import TimedOut, call_function, raise_if_stopped
from holdfast.core.agents.agent import Agent, AgentSpec
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.run_functions import (
    FUNCTION_SECONDS,
    INSTRUCTIONS_CHARS,
    RunContext,
    ToolSet,
    bind_function,
)
from holdfast.core.agents.templates import Template
from holdfast.core.base.canonical import canonical
from holdfast.core.llm.names import BUILT_IN
from holdfast.core.run.contracts.error_types import AGENT_FUNCTION_FAILED, CONTEXT_INVALID
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.tools.results import error_text, recordable_text
from holdfast.core.tools.secrets import Secrets
from holdfast.core.tools.typed_context import context_excess, read_context, secret_names
from holdfast.errors import CatalogError, ContextInvalid

ATTEMPTS = 3
"""How often a function that raises is called before the run is blocked."""


class FunctionFailed(Exception):
    """A function of an agent gave no instructions or tools; the message says why."""


@dataclass(frozen=True)
class AgentFunctions:
    """Calls the functions of a catalog's agents.

    Args:
        catalog: The agents, with the built-in tools.
        resources: The catalog's resources by type.
        secrets: Redacted from instructions and errors.
        endpoints: The names of the worker's LLM endpoints.
    """

    catalog: Catalog
    resources: Mapping[Any, Any]
    secrets: Secrets
    endpoints: Collection[str] = tuple(BUILT_IN)

    def context(self, agent: Agent, request: AgentRequest) -> dict[str, Any] | None:
        """Return the context of the run as the agent's model completes it; None if the agent has no model.

        Raises:
            ApplicationError: CONTEXT_INVALID.
        """
        try:
            return self._completed(agent, request)
        except ContextInvalid as error:
            why = self._shown(f"agent {agent.name!r}: {error}")  # a validator's message may quote anything
            raise ApplicationError(why, type=CONTEXT_INVALID, non_retryable=True) from None

    def _completed(self, agent: Agent, request: AgentRequest) -> dict[str, Any] | None:
        values = request.context
        if agent.context is None:
            if values is not None and request.given:
                raise ContextInvalid("it has no context, and the start gives one: Agent(context=MODEL)")
            return None
        read = read_context(agent.context, values or {}, more=not request.given)
        declared = {name for user in self.catalog.secret_users for name in user.secrets}
        if unknown := secret_names(read) - declared:
            raise ContextInvalid(
                f"its context names {len(unknown)} secret(s) that no tool of the catalog declares: "
                '@tool(secrets=("NAME",))'
            )
        completed = {**(values or {}), **read.model_dump(mode="json", by_alias=False, round_trip=True)}
        if why := context_excess(completed):
            raise ContextInvalid(f"its context {why}")
        text = canonical(completed).decode()
        if self.secrets.redact(text) != text:
            raise ContextInvalid(
                "its context holds the value of a secret of this worker, which no run uses: hold a reference instead "
                "(holdfast.SecretRef); if the start gave the value, the run has recorded it: replace that secret"
            )
        recorded: dict[str, Any] = json.loads(text)
        return recorded

    async def spec(
        self, agent: Agent, values: Mapping[str, Any] | None, run: RunContext, *, default_llm: str | Sequence[str]
    ) -> AgentSpec:
        """Return the agent as the run records it.

        Raises:
            FunctionFailed: A function keeps failing, or returns what no agent can have.
            ApplicationError: A function raised; Temporal calls it again.
        """
        instructions: str | None = None
        tools: tuple[str, ...] | None = None
        try:
            if isinstance(agent.instructions, Template):
                instructions = self._text(agent.instructions.filled(values, run))
            elif callable(agent.instructions):
                instructions = self._text(await self._call(agent, "instructions", agent.instructions, values, run))
            if isinstance(agent.tools, ToolSet):
                tools = _names(await self._call(agent, "tools", agent.tools.function, values, run))
            return self.catalog.spec(
                agent.name,
                default_llm=default_llm,
                endpoints=self.endpoints,
                instructions=instructions,
                tools=tools,
            )
        except (CatalogError, ContextInvalid) as error:
            raise FunctionFailed(self._shown(f"agent {agent.name!r}: {error}")) from None

    async def _call(
        self, agent: Agent, role: str, function: Callable[..., Any], values: Mapping[str, Any] | None, run: RunContext
    ) -> Any:
        what = f"the function of agent {agent.name!r} for its {role}"
        try:
            given = bind_function(function, values=values, run=run, resources=self.resources)
            return await call_function(function, given, FUNCTION_SECONDS, tool=role, key=f"{run.thread}/{role}")
        except TimedOut:
            why = f"{what} took longer than {FUNCTION_SECONDS:g} s"
        except BaseException as error:  # a user's function may raise anything
            raise_if_stopped(error)
            why = f"{what} raised {error_text(error)}"
        why = self._shown(why)
        info = activity.info()
        if info.is_local or info.attempt < ATTEMPTS:
            raise ApplicationError(why, type=AGENT_FUNCTION_FAILED) from None
        raise FunctionFailed(f"{why} ({info.attempt} attempts)")

    def _text(self, text: object) -> str:
        """Return instructions without secrets, if they can be recorded."""
        if not isinstance(text, str):
            raise FunctionFailed(f"the instructions are {type(text).__name__}, not text")
        if len(text) > INSTRUCTIONS_CHARS:
            raise FunctionFailed(f"the instructions have more than {INSTRUCTIONS_CHARS:,} characters")
        return self.secrets.redact(recordable_text(text))

    def _shown(self, text: str) -> str:
        return self.secrets.redact(text)[:2_000]


def _names(given: object) -> tuple[str, ...]:
    """Return the names of tools that a function has returned."""
    if isinstance(given, str) or not isinstance(given, list | tuple | set | frozenset):
        raise FunctionFailed(f"the tools are {type(given).__name__}, not a list of names")
    names = sorted(given, key=str) if isinstance(given, set | frozenset) else given
    if wrong := [each for each in names if not isinstance(each, str)]:
        raise FunctionFailed(f"the tools hold {type(wrong[0]).__name__}, not names")
    return tuple(names)
