"""Structured results: the tool with which an agent returns a result of its result type.

It is an ordinary tool, so it works with every endpoint that supports tool calls: the worker validates its arguments and
makes them canonical before they are recorded. The run itself executes its calls (`holdfast.core.run.decide.results`).
"""

import inspect
from dataclasses import replace
from typing import Any

from holdfast.core.base.canonical import exact_json
from holdfast.core.tools.decorator import Tool, tool
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.errors import CatalogError, ToolSignatureError

MAX_SCHEMA_BYTES = 32_000
"""Maximum size of a result's JSON schema, which is part of each of the agent's requests."""


def result_tool(agent: str, kind: Any) -> Tool:
    """Return the tool with which this agent returns its result.

    Args:
        agent: The agent's name, for errors.
        kind: The type of the result.

    Raises:
        CatalogError: The type cannot be read from JSON, has no JSON schema, or one that is too long.
    """
    if inspect.isroutine(kind):  # pydantic would treat it as the type of a call's arguments
        raise CatalogError(f"agent {agent!r}: result={kind!r} is not usable: it is a function, and not a type")

    def final_result(result: Any) -> None:
        """Give the result of your task. This ends your work.

        Call it alone, when everything else is done. A reply without this call is no result.

        Args:
            result: The result.
        """

    final_result.__annotations__ = {"result": kind, "return": None}
    try:
        made = tool(effect="read", trust="agent")(final_result)
    except ToolSignatureError as error:
        why = str(error).partition("tool 'final_result'")[2].removeprefix(", parameter 'result'").removeprefix(": ")
        raise CatalogError(f"agent {agent!r}: result={kind!r} is not usable: {why or error}") from None
    if not made.spec.parameters["properties"]["result"].keys() - {"description", "title"}:
        raise CatalogError(f"agent {agent!r}: result={kind!r} is not usable: it accepts any value, so it has no schema")
    if (size := len(exact_json(made.spec.parameters).encode())) > MAX_SCHEMA_BYTES:
        raise CatalogError(
            f"agent {agent!r}: the JSON schema of result={kind!r} has {size:,} bytes, of {MAX_SCHEMA_BYTES:,} at most"
        )
    return replace(made, spec=made.spec.model_copy(update={"name": FINAL_RESULT, "kind": "runtime"}))
