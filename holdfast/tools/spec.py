"""A tool as data: what the LLM is offered, and what the log records of it."""

from typing import Any

from holdfast.base.models import Frozen
from holdfast.tools.effects import Effect
from holdfast.trust import Trust


class ToolSpec(Frozen):
    """A tool as the LLM sees it and the policy judges it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    effect: Effect
    timeout: float
    """Seconds that one call may take."""
    undoable: bool = False
    """It can take its effect back (`@tool(undo=…)`)."""
    trust: Trust = "tool"
    """What its results are worth; `agent` where they repeat what the LLM wrote."""
    trusted_only: bool = False
    """A call by an LLM that has read what no person vouches for is asked about, even where the policy allows it."""
    wants_origin: bool = False
    """Its calls carry who asked, and of what trust the transcript is (`Origin`)."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The value of each parameter that has one where a call gives none, as JSON."""
        properties = self.parameters.get("properties", {})
        return {name: given["default"] for name, given in properties.items() if "default" in given}
