"""Extensions of budgets: their format."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from holdfast.core.authority.statements import Reasoned, parsed, read_given
from holdfast.core.base.canonical import unportable
from holdfast.core.base.names import PersonName
from holdfast.core.budget.budget import Amounts

LONGEST_PAYLOAD = 20_000
"""Maximum length of an extension, as JSON text."""

ExtensionOutcome = Literal[
    "accepted",
    "busy",
    "malformed",
    "too_late",
    "too_many",
    "too_much",
    "no_budget",
    "duplicate",
    "not_entitled",
    "unsigned",
    "bad_signature",
]
"""The outcome of an extension."""


class Extension(Reasoned, Amounts):
    """A person's extension of a run's budget; the JSON of the signal and the update `extend`."""

    FORMAT: ClassVar[str] = "extend/1"

    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Each id is accepted once in a run, so that an extension can be sent again safely; required for a signed one."""
    until: AwareDatetime | None = None
    """When a signed extension expires; required for one."""


def read_extension(payload: Any) -> Extension | tuple[ExtensionOutcome, str]:
    """Parse a payload as an extension; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= LONGEST_PAYLOAD else None
    extension = read_given(payload, Extension, name="extension", example='{"usd": "1", "by": "alice"}')
    if isinstance(extension, str):
        return "malformed", extension
    if why := unportable(extension.model_dump(mode="json")):
        return "malformed", f"the extension holds {why}"
    return extension
