"""The specification of a tool, which requests offer to the LLM and the log records."""

from typing import Any, Literal

from holdfast.core.base.models import Frozen
from holdfast.core.tools.effects import Effect
from holdfast.core.trust import Trust

FINAL_RESULT = "final_result"
"""The tool with which an agent returns a structured result (`Agent(result=…)`)."""

LONGEST_SETTLING = 7 * 24 * 3_600
"""Maximum of `settles_within`, in seconds."""


class ToolSpec(Frozen):
    """A tool as the LLM sees it and the policy judges it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    effect: Effect
    timeout: float
    """Time limit of one call, in seconds."""
    settles_within: float | None = None
    """Seconds after the end of an attempt in which its request may still arrive; None for `timeout`."""
    undoable: bool = False
    """Whether it can undo its effect (`@tool(undo=…)`)."""
    trust: Trust = "tool"
    """Trust level of its results; `agent` if they repeat what the LLM wrote."""
    trusted_only: bool = False
    """Whether a call needs approval, even if the policy allows it, once the LLM has read tainted content."""
    wants_origin: bool = False
    """Whether its calls carry the requester and the trust level of the transcript (`Origin`)."""
    wants_context: bool = False
    """Whether its calls carry the typed context of the run (`holdfast.core.tools.typed_context`)."""
    writes: tuple[str, ...] = ()
    """The fields of that context that a call may change."""
    previews: bool = False
    """Whether it can say what a call would do (`@tool(preview=…)`)."""
    consequence: str = ""
    """What a call does, in a sentence with parameters in braces (`@tool(consequence=…)`)."""
    pin: str = ""
    """Digest of a foreign tool's definition, which an operator has accepted (`holdfast.mcp.pins`); empty for others."""
    kind: Literal["activity", "runtime"] = "activity"
    """Whether a worker executes its calls, in an activity, or the run itself (`holdfast.core.run.waits.dormancy`)."""

    @property
    def settling_seconds(self) -> float:
        """Seconds after the end of an attempt in which its request may still arrive."""
        return self.timeout if self.settles_within is None else self.settles_within

    @property
    def defaults(self) -> dict[str, Any]:
        """The default value of each parameter that has one, as JSON."""
        properties = self.parameters.get("properties", {})
        return {name: schema["default"] for name, schema in properties.items() if "default" in schema}
