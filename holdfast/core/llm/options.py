"""Options of LLM calls under one name for all APIs. Each adapter translates them into fields of its requests."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.core.base.models import Definition

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much an LLM reasons before it answers. Not every LLM has every value; its provider rejects the others."""


def _check_endpoint(name: str) -> str:
    if not name or "/" in name:
        raise ValueError(f"fields are by endpoint, such as 'anthropic' or 'chat', not by {name!r}")
    return name


class LLMOptions(Definition):
    """Options of an agent's LLM calls; None leaves each to the provider's default."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    """How much the LLM varies its answers. Some LLMs that reason accept none."""
    effort: Effort | None = None
    """How much it reasons before it answers."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of a reply, reasoning included. A budget reserves as many for each call."""
    parallel_calls: bool | None = None
    """Whether a reply may make several tool calls."""
    strict: bool = False
    """Whether the provider keeps a call's arguments to the tool's schema, for each tool whose schema it supports. A
    worker names the others when it starts."""
    fields: dict[Annotated[str, AfterValidator(_check_endpoint)], dict[str, Any]] = {}
    """Additional fields of requests, verbatim, by endpoint: `{"anthropic": {"thinking": {"type": "adaptive"}}}`. They
    replace the fields that an option above becomes."""
