"""Refinements of a task: their format and limits."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from holdfast.core.authority.statements import Signed, parsed, read_given
from holdfast.core.base.canonical import unportable
from holdfast.core.base.names import PersonName
from holdfast.core.llm.messages import size_of, unfit

RefinementKind = Literal["narrow", "rescope", "correct"]
"""What a refinement does to the task: asks for less than before · asks for something else instead · puts right what the
task says wrongly."""

LONGEST_REFINEMENT = 8_000
"""Maximum size of the text of a refinement, in bytes of JSON; longer text belongs in a file in the workspace."""

RefinementOutcome = Literal[
    "accepted",
    "queued",
    "interrupting",
    "busy",
    "malformed",
    "too_long",
    "too_late",
    "too_many",
    "duplicate",
    "not_entitled",
    "unsigned",
    "bad_signature",
]
"""The outcome of a refinement. The first three are those of a message that the LLM will read."""


REFINE_TOOL = "refine_task"
"""The tool with which an agent asks people to refine its task."""


class Refinement(Signed):
    """A person's refinement of a run's task; the JSON of the signal and the update `refine`."""

    FORMAT: ClassVar[str] = "refine/1"

    kind: RefinementKind
    text: str
    """What the person says, which the LLM reads word for word."""
    by: Annotated[PersonName, Field(min_length=1)]
    when_busy: Literal["queue", "interrupt"] = "queue"
    """During a step: wait for its end, or interrupt the LLM call. It interrupts no tool."""
    id: str = Field(default="", max_length=100)
    """Each id counts once in a thread, so that a refinement can be sent again; required for a signed one."""
    until: AwareDatetime | None = None
    """When a signed refinement expires; required for one."""


def read_refinement(payload: Any) -> Refinement | tuple[RefinementOutcome, str]:
    """Parse a payload as a refinement; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= 10 * LONGEST_REFINEMENT else None
    example = '{"kind": "narrow", "text": "…", "by": "alice"}'
    refinement = read_given(payload, Refinement, name="refinement", example=example)
    if isinstance(refinement, str):
        return "malformed", refinement
    if not refinement.text.strip():
        return "malformed", "the text is empty: say what the task is from now on"
    if why := unfit(refinement.text):
        return "malformed", f"the text {why}"
    if why := unportable(refinement.model_dump(mode="json", exclude={"text"})):
        return "malformed", f"the refinement holds {why}"
    if (size := size_of(refinement.text)) > LONGEST_REFINEMENT:
        limit = f"the text has {size:,} bytes, but the limit is {LONGEST_REFINEMENT:,}"
        return "too_long", f"{limit}; put it into a file in the workspace, and name the file"
    return refinement
