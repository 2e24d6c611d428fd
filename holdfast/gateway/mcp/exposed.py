"""The agents that an operator exposes, each as a tool: its input and its output as JSON schemas.

Nothing is exposed by default. A schema holds the types of the context and the result, and nothing of the instructions,
the tools or the policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, field_validator

from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.results import result_tool
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.signatures import public_key
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.core.tools.typed_context import read_context, schema_of
from holdfast.errors import ContextInvalid, SettingsError
from holdfast.gateway.bodies import NOT_BLANK, Body, ContextBody, not_blank
from holdfast.gateway.http.problems import HTTPProblem, validation_text

RESULT_TOOL = "result"
"""The tool with which clients without tasks read the result of a run."""

_DEFS = "$defs"


class Arguments(Body):
    """The arguments of a call of an agent."""

    task: str = Field(min_length=1, max_length=MAX_TEXT_BYTES)
    """The agent's task."""
    context: ContextBody = None
    """The run's typed context."""

    _task_is_not_blank = field_validator("task")(not_blank)


@dataclass(frozen=True)
class ExposedAgent:
    """An agent as a tool."""

    agent: Agent
    must_sign: bool = False
    """Its approvers have to sign their decisions themselves: the gateway cannot vouch for them."""

    @property
    def name(self) -> str:
        """The tool's name, which is the agent's."""
        return self.agent.name

    @property
    def description(self) -> str:
        """What people and LLMs read about it."""
        return self.agent.description or f"Give a task to the agent {self.agent.title or self.agent.name}."

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments: the task, and the context if the agent declares one."""
        task = {"type": "string", "minLength": 1, "pattern": NOT_BLANK, "description": "What the agent should do."}
        schema: dict[str, Any] = {"type": "object", "properties": {"task": task}, "required": ["task"]}
        if self.agent.context is not None:
            context = schema_of(self.agent.context)
            schema |= {_DEFS: definitions} if (definitions := context.pop(_DEFS, None)) else {}
            schema["properties"]["context"] = context
            schema["required"] += ["context"] if self._needs_context else []
        return {**schema, "additionalProperties": False}

    @property
    def _needs_context(self) -> bool:
        fields = self.agent.context.model_fields.values() if self.agent.context is not None else ()
        return any(field.is_required() for field in fields)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of its typed result; None if its result is text."""
        if self.agent.result is None:
            return None
        parameters = result_tool(self.name, self.agent.result).spec.parameters
        definitions = {_DEFS: parameters[_DEFS]} if _DEFS in parameters else {}
        return {**parameters["properties"]["result"], **definitions}

    def arguments(self, given: Mapping[str, Any] | None) -> Arguments:
        """Read the arguments of a call.

        Raises:
            HTTPProblem: 422: they do not fit the schema.
        """
        try:
            arguments = Arguments.model_validate(dict(given or {}))
        except ValidationError as error:
            raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None
        model = self.agent.context
        if model is None and arguments.context is not None:
            raise HTTPProblem(422, f"context: the agent {self.name} has none")
        if model is not None and (arguments.context is not None or self._needs_context):
            try:
                read_context(model, arguments.context or {})
            except ContextInvalid as error:
                raise HTTPProblem(422, str(error)) from None
        return arguments


def expose(
    catalog: Catalog, names: Iterable[str], *, policy: Policy | None = None, key: str | None = None
) -> dict[str, ExposedAgent]:
    """Return the agents of a catalog to expose, by name.

    Args:
        catalog: The workers' catalog.
        names: The names of the agents.
        policy: The policy that replaces those of all agents; None for the agents' own.
        key: The gateway's private key; None if it vouches for nobody.

    Raises:
        SettingsError: The catalog has no such agent, or it cannot be a tool beside `result`.
    """
    vouching = public_key(key) if key else None
    exposed = {}
    for name in names:
        if name not in catalog.agents:
            raise SettingsError(
                f"the catalog has no agent {name!r} to expose; it has: {', '.join(catalog.agents)}. "
                "Correct HOLDFAST_MCP_AGENTS, or the arguments of `mcp serve`."
            )
        if name == RESULT_TOOL:
            raise SettingsError(f"the agent {name!r} has the name of the tool that reads results; rename it")
        agent = catalog.agents[name]
        exposed[name] = ExposedAgent(agent, must_sign=_must_sign(policy or agent.policy, vouching))
    return exposed


def _must_sign(policy: Policy, vouching: str | None) -> bool:
    vouched = any(vouching in gateway.keys for gateway in policy.gateways)
    return policy.signatures == "required" and not vouched
