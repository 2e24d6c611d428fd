"""Options of LLM calls under one name for all APIs. Each adapter translates them into fields of its requests."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from holdfast.core.base.models import Definition

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much an LLM reasons before it answers. Not every LLM has every value; its provider rejects the others."""


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
    fields: dict[str, dict[str, Any]] = {}
    """Additional fields of requests, verbatim, by endpoint: `{"anthropic": {"thinking": {"type": "adaptive"}}}`. They
    replace the fields that an option above becomes."""

    @model_validator(mode="after")
    def _name_endpoints(self) -> Self:
        if wrong := [name for name in self.fields if not name or "/" in name]:
            raise ValueError(f"fields are by endpoint, such as 'anthropic' or 'chat', not by {wrong[0]!r}")
        return self

    def fields_for(self, endpoint: str) -> dict[str, Any]:
        """Return the additional fields for an endpoint."""
        return self.fields.get(endpoint, {})
