"""The typed context of a run: values that a program gives with the start, such as the customer whom a chat is about.

    class Customer(BaseModel):
        number: str
        verified: bool = False

    @tool(effect="read")
    async def balance(customer: Context[Customer]) -> str: ...

    await client.start("How much is left?", context=Customer(number="4711"))

1. A context is a pydantic model; it is recorded as JSON, with the names of its fields. The LLM does not see it, unless
   the agent's instructions show it.
2. A parameter `Context[Model]` gets the context. It is not part of the schema that the LLM sees.
3. A secret is never a value of a context: a `SecretRef` names an environment variable of the worker.
4. The size is bounded before anything else reads the values.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast.core.base.canonical import canonical, digest, unportable
from holdfast.core.base.models import nearest
from holdfast.core.tools.signatures import hints_of
from holdfast.errors import ContextInvalid, ToolSignatureError

CONTEXT_BYTES = 16_384
"""Maximum size of a context as canonical JSON: it travels with the start, each call that uses it, and sub-agents."""

CONTEXT_DEPTH = 16
"""Maximum levels of JSON in a context."""

SCHEMA_BYTES = 65_536
"""Maximum size of the JSON schema of a context's model, which every run records."""

T = TypeVar("T")


class _Marker:
    """Marks a parameter that gets the context of the run."""


_MARKER = _Marker()

Context = Annotated[T, _MARKER]
"""`customer: Context[Customer]` is a parameter that gets the run's context. Type checkers see a `Customer`."""


class SecretRef(BaseModel):
    """A reference to a secret, in a context: the environment variable of the worker that holds it.

    `ToolContext.secret` returns the value, to a tool that declares the variable. Only the name is recorded. In JSON, a
    reference is `{"secret": "NAME"}`, so that a value cannot be mistaken for a name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secret: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")
    """The name of the environment variable."""


@dataclass(frozen=True)
class ContextUpdate:
    """A tool's result that also changes the context of the run, from the next step on.

    A tool may change only the fields that it declares: `@tool(writes=("verified",))`.
    """

    result: Any
    """The result that the LLM reads."""
    changes: Mapping[str, Any] | BaseModel = field(default_factory=dict)
    """The new values of fields of the context, or the changed context."""


def context_type(hint: Any) -> Any:
    """Return the model that an annotation `Context[Model]` names; None for any other annotation."""
    return get_args(hint)[0] if get_origin(hint) is Annotated and _MARKER in get_args(hint)[1:] else None


def contexts_of(function: Callable[..., Any]) -> dict[str, type[BaseModel]]:
    """Return the model of each parameter that gets the context, by parameter name.

    Raises:
        ToolSignatureError: A context is part of a larger type, or is no pydantic model.
    """
    found: dict[str, type[BaseModel]] = {}
    for name, hint in hints_of(function).items():
        if (kind := context_type(hint)) is not None:
            if not is_model(kind):
                raise ToolSignatureError(f"parameter {name!r}: Context[…] names a pydantic model, and not {kind!r}")
            found[name] = kind
        elif _holds_marker(hint):
            raise ToolSignatureError(f"parameter {name!r}: Context[…] must be the whole annotation, not part of {hint}")
    return found


def _holds_marker(hint: Any) -> bool:
    return context_type(hint) is not None or any(map(_holds_marker, get_args(hint)))


def is_model(kind: Any) -> bool:
    """Return whether this can be the model of a context: a pydantic model with fields."""
    return isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, RootModel)


def context_values(context: object) -> dict[str, Any] | None:
    """Return a context from a program as it is recorded: its fields, as JSON.

    Args:
        context: An instance of a pydantic model, or a mapping of field names to JSON; None for no context.

    Raises:
        ContextInvalid: It is neither, holds a secret, is too large or too deep, or has no canonical JSON.
    """
    if context is None:
        return None
    values: Any = context
    if isinstance(context, BaseModel) and is_model(type(context)):
        if why := model_problem(type(context)):
            raise ContextInvalid(f"the context {why}")
        try:
            values = context.model_dump(mode="json", by_alias=False, round_trip=True)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise ContextInvalid(f"the context {type(context).__name__} has no JSON: {type(error).__name__}") from None
    elif not isinstance(context, Mapping):
        kind = context.__name__ if isinstance(context, type) else type(context).__name__
        raise ContextInvalid(
            f"the context is an instance of a pydantic model, or a mapping of its fields; this is "
            f"{'the class ' if isinstance(context, type) else ''}{kind}"
        )
    else:
        values = dict(context)
    if why := context_excess(values):
        raise ContextInvalid(f"the context {why}")
    recorded: dict[str, Any] = json.loads(canonical(values))
    return recorded


def context_excess(values: object) -> str:
    """Return why a value cannot be recorded as a context; empty if it can."""
    if not isinstance(values, dict):
        return "is no JSON object"
    level: list[Any] = [values]
    size = 0
    for _ in range(CONTEXT_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                size += sum(len(key) + 4 if isinstance(key, str) else 4 for key in each)
                inner += each.values()
            elif isinstance(each, list | tuple):
                size += len(each)
                inner += each
            else:
                size += len(each) if isinstance(each, str) else 1
            if size > CONTEXT_BYTES:
                return f"is larger than {CONTEXT_BYTES:,} bytes of JSON: give it a reference to the content instead"
        level = inner
        if not level:
            break
    else:
        return f"has more than {CONTEXT_DEPTH} levels of JSON"
    if why := unportable(values):
        return f"cannot be recorded: it holds {why}"
    if len(canonical(values)) > CONTEXT_BYTES:
        return f"is larger than {CONTEXT_BYTES:,} bytes of JSON: give it a reference to the content instead"
    return ""


def context_digest(values: Mapping[str, Any] | None) -> str:
    """Return the digest of a context, format `context/1`; empty for no context."""
    return "" if values is None else digest(["context/1", dict(values)])


def model_problem(model: type[BaseModel]) -> str:
    """Return why a model cannot be that of a context; empty if it can. Secrets are never recorded, so it holds none."""
    if not is_model(model):
        return f"is no pydantic model with fields: {model!r}"
    if (secret := _secret_in(model, set())) is not None:
        return _holds_secret(model, secret)
    if excluded := [name for name, each in model.model_fields.items() if each.exclude]:
        return f"would lack {model.__name__}.{excluded[0]}, which is excluded from its JSON"
    try:
        schema = canonical(found := schema_of(model))
    except Exception as error:  # a field may be of any type
        return f"has no JSON schema: {model.__name__}: {type(error).__name__}: {error}"
    if len(schema) > SCHEMA_BYTES:
        return f"has a JSON schema of more than {SCHEMA_BYTES:,} bytes: {model.__name__}"
    secret = _secret_in_schema(found)
    return "" if secret is None else _holds_secret(model, secret)


def _holds_secret(model: type[BaseModel], place: str) -> str:
    return (
        f"has the secret {model.__name__}.{place}: a run records its context, so hold a reference to an "
        "environment variable of the worker instead (holdfast.SecretRef)"
    )


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a context, by the names of its fields."""
    bare: dict[str, Any] = _bare(model.model_json_schema(by_alias=False))
    return bare


def _bare(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without titles and descriptions, which say nothing about the values.

    Args:
        schema: The schema, or a part of it.
        names: The keys of this part are names of fields or of definitions.
    """
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: each if key in _VALUES and not names else _bare(each, names=key in _NAMED and not names)
        for key, each in schema.items()
        if names or key not in ("title", "description")
    }


_VALUES = ("default", "enum", "const", "examples")
"""Parts of a schema that are values."""

_NAMED = ("properties", "$defs")
"""Parts of a schema whose keys are names."""


def _secret_in(hint: Any, seen: set[Any]) -> str | None:
    """Return the path of a secret's value within a type, by pydantic's types and by `writeOnly`: empty for the type
    itself; None if it holds none.
    """
    if hasattr(get_origin(hint) or hint, "get_secret_value"):
        return ""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        if hint in seen:
            return None
        seen.add(hint)
        for name, each in hint.model_fields.items():
            extra = each.json_schema_extra
            marked = isinstance(extra, dict) and bool(extra.get("writeOnly"))
            inner = "" if marked else _secret_in(each.annotation, seen)
            if inner is not None:
                return f"{name}.{inner}".rstrip(".")
        return None
    return next((found for each in get_args(hint) if (found := _secret_in(each, seen)) is not None), None)


def _secret_in_schema(schema: Any, *, names: bool = False) -> str | None:
    """Return the path of a secret's value within a JSON schema, as dataclasses, typed dictionaries and new types have
    it; None if there is none.

    Args:
        schema: The schema, or a part of it.
        names: The keys of this part are names of fields or of definitions.
    """
    if isinstance(schema, dict):
        if not names and (schema.get("writeOnly") is True or schema.get("format") == "password"):
            return ""
        parts = (
            (key, each, key in _NAMED and not names) for key, each in schema.items() if names or key not in _VALUES
        )
    elif isinstance(schema, list):
        parts = (("", each, False) for each in schema)
    else:
        return None
    for key, each, named in parts:
        if (inner := _secret_in_schema(each, names=named)) is not None:
            return ".".join(part for part in (key if names else "", inner) if part)
    return None


ModelT = TypeVar("ModelT", bound=BaseModel)


def read_context(model: type[ModelT], values: Mapping[str, Any], *, more: bool = False) -> ModelT:
    """Validate recorded values.

    Args:
        model: The model.
        values: The values, by field name.
        more: Whether fields that the model lacks are ignored: the context may have been made for another agent.

    Raises:
        ContextInvalid: They do not fit; the message names the fields, but no values.
    """
    try:
        return model.model_validate_json(
            json.dumps(dict(values)), extra="ignore" if more else "forbid", by_alias=False, by_name=True
        )
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise ContextInvalid(
            f"the context does not fit {model.__name__}: {'; '.join(_shown(model, each) for each in problems[:5])}"
        ) from None
    except Exception as error:  # a validator of the user's
        raise ContextInvalid(f"the context does not fit {model.__name__}: {type(error).__name__}") from None


def _shown(model: type[BaseModel], problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"]) or "it"
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return f"{place}: unknown field; {nearest(place, list(model.model_fields))}"
    if (problem.get("ctx") or {}).get("class_name") == SecretRef.__name__:
        return (
            f'{place}: it is a reference, such as {{"secret": "NAME"}}, to an environment variable of the worker; if '
            "the start gave the value of a secret, the run has recorded it: replace that secret"
        )
    return f"{place}: {problem['msg']}"[:300]


def secret_names(value: object) -> set[str]:
    """Return the environment variables that the references in a context name."""
    if isinstance(value, SecretRef):
        return {value.secret}
    if isinstance(value, BaseModel):
        return {name for each in type(value).model_fields for name in secret_names(getattr(value, each))}
    if isinstance(value, Mapping):
        return {name for each in value.values() for name in secret_names(each)}
    if isinstance(value, list | tuple | set | frozenset):
        return {name for each in value for name in secret_names(each)}
    return set()
