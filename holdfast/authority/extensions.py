"""Extensions of budgets: their format."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.authority.statements import Reasoned, parsed, validation_message
from holdfast.base.canonical import unportable
from holdfast.base.names import PersonName
from holdfast.budget.budget import Amounts
from holdfast.llm.messages import too_deep

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
    """Each id counts once in a run, so that an extension can be sent again; required for a signed one."""
    until: AwareDatetime | None = None
    """When a signed extension expires; required for one."""


def read_extension(payload: Any) -> Extension | tuple[ExtensionOutcome, str]:
    """Parse a payload as an extension; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= LONGEST_PAYLOAD else None
    if not isinstance(payload, dict):
        return "malformed", f'expected an object such as {{"usd": "1", "by": "alice"}}, got {type(payload).__name__}'
    if too_deep(payload):
        return "malformed", "the extension is nested too deeply"
    try:
        extension = Extension.model_validate(payload)
    except ValidationError as error:
        return "malformed", validation_message(error)[:2_000]
    if why := unportable(extension.model_dump(mode="json")):
        return "malformed", f"the extension holds {why}"
    return extension
