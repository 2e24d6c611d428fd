"""A person's reclassification of a run: another agent, a lower trust level, or a smaller budget."""

from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, Field, model_validator

from holdfast.core.authority.interventions import LONGEST_PAYLOAD, InterventionOutcome
from holdfast.core.authority.statements import Reasoned, read_given
from holdfast.core.base.canonical import parsed, unportable
from holdfast.core.base.names import PersonName
from holdfast.core.budget.budget import Amounts
from holdfast.core.trust import Trust


class Reclassification(Reasoned):
    """A person's change of a run's class; the JSON of the signal and the update `reclassify`."""

    FORMAT: ClassVar[str] = "reclassify/1"

    agent: str = Field(default="", max_length=200)
    """The agent of the catalog that continues the run; empty to keep the agent."""
    trust: Trust | None = None
    """The trust level from now on, lower than now; None to keep it."""
    budget: Amounts | None = None
    """The limits from now on, lower than now; None to keep them."""
    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Required for a signed one, which counts once."""
    until: AwareDatetime | None = None
    """When a signed one expires; required for one."""

    @model_validator(mode="after")
    def _changes_something(self) -> "Reclassification":
        if not (self.agent or self.trust or self.budget):
            raise ValueError("give at least one of agent, trust and budget")
        return self


def read_reclassification(payload: Any) -> Reclassification | tuple[InterventionOutcome, str]:
    """Parse a payload as a reclassification; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= LONGEST_PAYLOAD else None
    read = read_given(payload, Reclassification, name="reclassification", example='{"agent": "b", "by": "alice"}')
    if isinstance(read, str):
        return "malformed", read
    if why := unportable(read.model_dump(mode="json")):
        return "malformed", f"the reclassification holds {why}"
    return read
