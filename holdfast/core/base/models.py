"""The base classes of all models that are persisted or cross a process boundary, the placeholder for a payload that
does not decode, and a fast `replace`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

DEFINING: Final = "defining"
"""The validation context for input from people: a definition in Python, a policy file, a request body. Checks that
would make persisted data unreadable apply only in this context."""


class Frozen(BaseModel):
    """An immutable pydantic model.

    Decoding ignores unknown fields, so that an older worker can read the output of a newer one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, unvalidated: as pydantic does, in half of the time."""
        if deep or self.__pydantic_private__ is not None:
            return super().model_copy(update=update, deep=deep)
        copied, put, changes = object.__new__(type(self)), object.__setattr__, update or {}
        put(copied, "__dict__", {**self.__dict__, **changes})
        put(copied, "__pydantic_fields_set__", {*self.__pydantic_fields_set__, *changes})
        put(copied, "__pydantic_extra__", None)
        put(copied, "__pydantic_private__", None)
        return copied


class Definition(Frozen):
    """A model that people construct in their code.

    Its constructor rejects unknown fields, also in nested mappings, so that a misspelt limit or rule is never silently
    dropped. Decoding (`model_validate`) still ignores them, as in every `Frozen`.
    """

    def __init__(self, /, **fields: Any) -> None:
        """Construct the definition.

        Raises:
            ValidationError: A field is unknown or invalid; for an unknown one, the message suggests the nearest name.
        """
        try:
            self.__pydantic_validator__.validate_python(fields, self_instance=self, extra="forbid", context=DEFINING)
        except ValidationError as error:
            if not any(problem["type"] == "extra_forbidden" for problem in error.errors(include_url=False)):
                raise
            raise _naming_nearest(type(self), error) from None

    # Without this, pydantic would decode nested definitions with this constructor and reject a newer release's fields.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Sealed(Frozen):
    """A model that only our own processes can create: a payload does not decode as one without a fleet key's seal."""

    SEALED: ClassVar[bool] = True


def nearest(name: str, known: list[str]) -> str:
    """Suggest the known name nearest to an unknown one; list all of them if none is close."""
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.61)
    return f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(known)}"


def _naming_nearest(model: type[BaseModel], error: ValidationError) -> ValidationError:
    """Return the error with a helpful message for each unknown field."""
    problems = error.errors(include_url=False)
    return ValidationError.from_exception_data(error.title, [_explained(model, problem) for problem in problems])


def _explained(model: type[BaseModel], problem: ErrorDetails) -> InitErrorDetails:
    kind, message = problem["type"], problem["msg"]
    if kind == "extra_forbidden":
        owner, name = _owner(model, problem["loc"][:-1]), str(problem["loc"][-1])
        suggestion = f"; {nearest(name, list(owner.model_fields))}" if owner else ""
        kind, message = "unknown_field", f"{owner.__name__ if owner else 'it'} has no field {name!r}{suggestion}"
    custom = PydanticCustomError(kind, "{words}", {"words": message})
    return {"type": custom, "loc": problem["loc"], "input": problem["input"]}


def _owner(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the model at a path within another; None if its annotation does not identify one."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            inner = next(_models_in(model.model_fields[part].annotation), None)
            if inner is None:
                return None
            model = inner
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:
    ValueT = TypeVar("ValueT")

    def replace(value: ValueT, /, **changes: Any) -> ValueT:
        """Return a copy of a frozen dataclass without slots, with the given fields changed.

        Skips `__init__`, which would set each field by itself: a fold copies its state for each of thousands of events.
        `|` copies a dict of thirty fields at once.
        """
        changed = object.__new__(type(value))
        object.__setattr__(changed, "__dict__", value.__dict__ | changes)
        return changed


@dataclass(frozen=True)
class Unread:
    """Stands in for a message whose payload does not decode.

    Anybody with access to Temporal can send any payload: encrypted with an unknown key, in an encoding that does not
    exist, or invalid JSON. An exception would fail the workflow task and each of its retries. So the payload of an
    untrusted message decodes as `Unread` instead, and the run rejects it like any other malformed message.
    """

    UNREAD: ClassVar[bool] = True
    """Identifies the class: in Temporal's sandbox, workflow code has another copy of it."""

    why: str
    sent: bytes
    """The payload's data."""

    def __str__(self) -> str:
        return f"it cannot be read: {self.why}"


def is_unread(value: Any) -> TypeGuard[Unread]:
    """Return whether `value` is the placeholder for one that could not be decoded."""
    return getattr(type(value), "UNREAD", False) is True


def argument_of(values: Iterable[Any]) -> Any:
    """Return the argument that a message's handler uses: the first one, or None; `Unread` if any cannot be decoded."""
    values = list(values)
    return next(filter(is_unread, values), values[0] if values else None)
