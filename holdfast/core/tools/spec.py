"""The specification of a tool: what the LLM is offered and what the log records."""

from typing import Any, Literal

from holdfast.core.base.models import Frozen
from holdfast.core.tools.effects import Effect
from holdfast.core.trust import Trust

FINAL_RESULT = "final_result"
"""The tool with which an agent gives a result that has a type (`Agent(result=…)`)."""

LONGEST_SETTLING = 7 * 24 * 3_600
"""The most seconds that `settles_within` can give."""


class ToolSpec(Frozen):
    """A tool as the LLM sees it and the policy judges it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    effect: Effect
    timeout: float
    """Seconds that one call may take."""
    settles_within: float | None = None
    """Seconds after the end of an attempt in which its request may still arrive; None for `timeout`."""
    undoable: bool = False
    """Whether it can undo its effect (`@tool(undo=…)`)."""
    trust: Trust = "tool"
    """Trust level of its results; `agent` if they repeat what the LLM wrote."""
    trusted_only: bool = False
    """Whether a call needs approval, even if the policy allows it, once the LLM has read what no person vouches for."""
    wants_origin: bool = False
    """Whether its calls carry who asked and the trust level of the transcript (`Origin`)."""
    kind: Literal["activity", "runtime"] = "activity"
    """Who carries out its calls: a worker, in an activity; or the run itself (`holdfast.core.run.waits.dormancy`)."""

    @property
    def settling_seconds(self) -> float:
        """Seconds after the end of an attempt in which its request may still arrive."""
        return self.timeout if self.settles_within is None else self.settles_within

    @property
    def defaults(self) -> dict[str, Any]:
        """The default value of each parameter that has one, as JSON."""
        properties = self.parameters.get("properties", {})
        return {name: given["default"] for name, given in properties.items() if "default" in given}
