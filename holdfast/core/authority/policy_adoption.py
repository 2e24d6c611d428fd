"""A person's statement that an open run adopts another policy."""

from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, Field

from holdfast.core.authority.interventions import LONGEST_PAYLOAD, InterventionOutcome
from holdfast.core.authority.statements import Reasoned, read_given
from holdfast.core.base.canonical import parsed, unportable
from holdfast.core.base.names import PersonName


class PolicyAdoption(Reasoned):
    """A person's statement that a run adopts a policy; the JSON of the signal and the update `adopt_policy`.

    It names the policy by its digest, and never contains it: the policy comes from a worker, whose operator has put it
    into force there.
    """

    FORMAT: ClassVar[str] = "adopt_policy/1"

    policy: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of the policy (`Policy.hash`)."""
    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Required for a signed one, which counts once."""
    until: AwareDatetime | None = None
    """When a signed one expires; required for one."""


def read_adoption(payload: Any) -> PolicyAdoption | tuple[InterventionOutcome, str]:
    """Parse a payload as an adoption; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= LONGEST_PAYLOAD else None
    read = read_given(payload, PolicyAdoption, name="adoption", example='{"policy": "<64 hex digits>", "by": "alice"}')
    if isinstance(read, str):
        return "malformed", read
    if why := unportable(read.model_dump(mode="json")):
        return "malformed", f"the adoption holds {why}"
    return read
