"""The JSON schema of a tool's parameters, which the LLM sees, and the pydantic model that parses its arguments.

1. Providers must accept the schema: it has no titles, which would waste tokens, and `items` in every array.
2. A type is rejected if its values do not survive a JSON round trip.
"""

import json
import warnings
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning

from holdfast.core.tools.arguments import ArgumentsInvalid, read_arguments
from holdfast.errors import ToolSignatureError

Fields = dict[str, tuple[Any, FieldInfo]]
"""Type and details of each parameter, by field name. Fields are `p0`, `p1`, … with the real names as aliases, so that
no parameter collides with pydantic's own names."""

_DATA = ("default", "enum", "const", "examples")
"""Parts of a schema that are values, not schemas."""


def arguments_of(name: str, fields: Fields) -> tuple[type[BaseModel], dict[str, Any]]:
    """Make the pydantic model of a function's parameters, and their JSON schema.

    Args:
        name: The tool's name.
        fields: The parameters.

    Raises:
        ToolSignatureError: A type cannot be read from JSON, or has no schema; the message names the parameter.
    """
    try:
        return _model_and_schema(f"tool {name!r}", name, fields)
    except ToolSignatureError:
        for each, field in fields.items():  # one by one, so that the error has the parameter's name
            _model_and_schema(f"tool {name!r}, parameter {field[1].alias!r}", name, {each: field})
        raise


def _model_and_schema(prefix: str, name: str, fields: Fields) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        model: type[BaseModel] = create_model(name, __config__=_LENIENT, **fields)  # type: ignore[call-overload]
        optional = {each: fields[each] for each, field in model.model_fields.items() if not field.is_required()}
        defaults: type[BaseModel] = create_model(name, __config__=_LENIENT, **optional)  # type: ignore[call-overload]
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ToolSignatureError(f"{prefix}: the type cannot be read from JSON: {reason}") from None
    return model, _schema(prefix, model, defaults)


# Defaults are validated like arguments: `1` for a float becomes 1.0, the value that the policy judges.
_LENIENT = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants")


def _check_plain(prefix: str, arguments: type[BaseModel], schema: Any) -> None:
    """Reject types whose values do not survive a JSON round trip."""
    if _holds(schema, "writeOnly", True):
        raise ToolSignatureError(
            f"{prefix}: the type is a secret (SecretStr), but the LLM writes it and approvers read it; "
            "declare the secret with @tool(secrets=…) and read it with context.secret(…)"
        )
    if _holds(arguments.__pydantic_core_schema__, "type", "generator"):
        raise ToolSignatureError(f"{prefix}: the type can be iterated only once (Iterable, Generator); use a list")


def _holds(schema: Any, key: str, value: Any) -> bool:
    """Whether any object in a schema has this entry."""
    if isinstance(schema, dict):
        return schema.get(key) == value or any(_holds(each, key, value) for each in schema.values())
    return isinstance(schema, list | tuple) and any(_holds(each, key, value) for each in schema)


class _Untitled(GenerateJsonSchema):
    """Omits the titles that pydantic derives from field names: they would waste the LLM's tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(prefix: str, arguments: type[BaseModel], optional: type[BaseModel]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            schema = arguments.model_json_schema(schema_generator=_Untitled)
    except (PydanticUserError, PydanticJsonSchemaWarning) as error:
        reason = str(error).partition("\n")[0]
        raise ToolSignatureError(f"{prefix}: the type has no JSON schema: {reason}") from None
    schema.pop("title", None)
    properties = schema.setdefault("properties", {})
    _check_plain(prefix, arguments, schema)
    try:
        defaults = json.loads(read_arguments(optional, "").text)
    except ArgumentsInvalid as error:
        raise ToolSignatureError(f"{prefix}: the default does not fit the type: {error}") from None
    for parameter in properties.keys() & defaults.keys():
        if "default" in properties[parameter]:  # a factory makes a new default for each call
            properties[parameter]["default"] = defaults[parameter]
    written: dict[str, Any] = _with_items(schema)
    return written


def _with_items(schema: Any) -> Any:
    """Give each array of fixed length one schema for its items, because providers reject arrays without `items`."""
    if isinstance(schema, list):
        return [_with_items(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: value if key in _DATA else _with_items(value) for key, value in schema.items()}
    for key in ("properties", "$defs", "patternProperties"):  # their keys are arbitrary names, not keywords
        if isinstance(named := schema.get(key), dict):
            written[key] = {name: _with_items(each) for name, each in named.items()}
    if isinstance(places := written.get("prefixItems"), list):
        del written["prefixItems"]
        kinds = [each for number, each in enumerate(places) if each not in places[:number]]
        more = [each for each in [written.get("items")] if isinstance(each, dict) and each not in kinds]
        written["items"] = kinds[0] if len(kinds) == 1 and not more else {"anyOf": [*kinds, *more]}
    elif written.get("type") == "array":
        written.setdefault("items", {})
    return written
