"""The base classes of every model that is persisted or crosses a process boundary, and copies with changed fields."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

DEFINING: Final = "defining"
"""The validation context of what a person writes: a definition in Python, a policy file, the body of a request. Checks
that would make persisted data unreadable apply only in it."""


class Frozen(BaseModel):
    """An immutable pydantic model.

    Decoding ignores unknown fields, so that an older worker can read what a newer one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Definition(Frozen):
    """A model that people construct in their code.

    Its constructor refuses unknown fields, also in mappings inside it: a misspelt limit or rule must not be dropped in
    silence. Decoding (`model_validate`) still ignores them, as in every `Frozen`.
    """

    def __init__(self, /, **fields: Any) -> None:
        """Construct the definition.

        Raises:
            ValidationError: A field is unknown or invalid; for an unknown one, the message names the nearest one.
        """
        try:
            self.__pydantic_validator__.validate_python(fields, self_instance=self, extra="forbid", context=DEFINING)
        except ValidationError as error:
            if not any(problem["type"] == "extra_forbidden" for problem in error.errors(include_url=False)):
                raise
            raise _naming_nearest(type(self), error) from None

    # Without it, pydantic would decode nested definitions with this constructor, and refuse what a newer release wrote.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Sealed(Frozen):
    """A model that only our own processes can create: a payload without a fleet key's seal does not decode as one."""

    SEALED: ClassVar[bool] = True


def nearest(name: str, known: list[str]) -> str:
    """Suggest a known name in place of an unknown one; all of them if none is close."""
    # A whole name within the other is closer than its letters: `tool` of `tools`, `max_step` of `max_steps`.
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(known)}"


def _naming_nearest(model: type[BaseModel], error: ValidationError) -> ValidationError:
    """Return the error with a message for each unknown field that helps to correct it."""
    problems = error.errors(include_url=False)
    return ValidationError.from_exception_data(error.title, [_explained(model, problem) for problem in problems])


def _explained(model: type[BaseModel], problem: ErrorDetails) -> InitErrorDetails:
    kind, words = problem["type"], problem["msg"]
    if kind == "extra_forbidden":
        owner, name = _owner(model, problem["loc"][:-1]), str(problem["loc"][-1])
        suggestion = f"; {nearest(name, list(owner.model_fields))}" if owner else ""
        kind, words = "unknown_field", f"{owner.__name__ if owner else 'it'} has no field {name!r}{suggestion}"
    custom = PydanticCustomError(kind, "{words}", {"words": words})
    return {"type": custom, "loc": problem["loc"], "input": problem["input"]}


def _owner(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the model at a place within another; None if it cannot be told which one it is."""
    for part in place:
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
        """Return a copy of a frozen dataclass without slots, with these fields changed.

        Skips `__init__`, which a fold over thousands of events would call for every field of every event. `|` copies
        a dict of thirty fields in one piece.
        """
        changed = object.__new__(type(value))
        object.__setattr__(changed, "__dict__", value.__dict__ | changes)
        return changed
