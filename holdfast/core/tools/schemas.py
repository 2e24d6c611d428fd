"""The pydantic model of a tool's parameters, and their JSON schema: what the LLM sees, and what reads its arguments.

1. A schema is one that providers accept: without titles, which are wasted tokens, and with `items` in every array.
2. A type is refused if its values do not survive being written as JSON.
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
"""Parts of a schema that are values, and no schemas."""


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
        for each, given in fields.items():  # alone, so that the error has the parameter's name
            _model_and_schema(f"tool {name!r}, parameter {given[1].alias!r}", name, {each: given})
        raise


def _model_and_schema(where: str, name: str, fields: Fields) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        model: type[BaseModel] = create_model(name, __config__=_LENIENT, **fields)  # type: ignore[call-overload]
        optional = {each: fields[each] for each, field in model.model_fields.items() if not field.is_required()}
        defaults: type[BaseModel] = create_model(name, __config__=_LENIENT, **optional)  # type: ignore[call-overload]
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ToolSignatureError(f"{where}: the type cannot be read from JSON: {reason}") from None
    return model, _schema(where, model, defaults)


# Defaults are validated like arguments: `1` for a float becomes 1.0, which is what the policy judges.
_LENIENT = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants")


def _check_plain(where: str, arguments: type[BaseModel], schema: Any) -> None:
    """Reject types whose values do not survive being written as JSON."""
    if _holds(schema, "writeOnly", True):
        raise ToolSignatureError(
            f"{where}: the type is a secret (SecretStr), but the LLM writes it and approvers read it; "
            "declare the secret with @tool(secrets=…) and read it with context.secret(…)"
        )
    if _holds(arguments.__pydantic_core_schema__, "type", "generator"):
        raise ToolSignatureError(f"{where}: the type can be iterated only once (Iterable, Generator); use a list")


def _holds(value: Any, key: str, wanted: Any) -> bool:
    """Whether any object in a schema has this entry."""
    if isinstance(value, dict):
        return value.get(key) == wanted or any(_holds(each, key, wanted) for each in value.values())
    return isinstance(value, list | tuple) and any(_holds(each, key, wanted) for each in value)


class _Untitled(GenerateJsonSchema):
    """Omits the titles that pydantic derives from field names: to an LLM they are wasted tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(where: str, arguments: type[BaseModel], optional: type[BaseModel]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            schema = arguments.model_json_schema(schema_generator=_Untitled)
    except (PydanticUserError, PydanticJsonSchemaWarning) as error:
        reason = str(error).partition("\n")[0]
        raise ToolSignatureError(f"{where}: the type has no JSON schema: {reason}") from None
    schema.pop("title", None)
    properties = schema.setdefault("properties", {})
    _check_plain(where, arguments, schema)
    try:
        defaults = json.loads(read_arguments(optional, "").text)
    except ArgumentsInvalid as error:
        raise ToolSignatureError(f"{where}: the default does not fit the type: {error}") from None
    for parameter in properties.keys() & defaults.keys():
        if "default" in properties[parameter]:  # otherwise a factory makes it for each call
            properties[parameter]["default"] = defaults[parameter]
    written: dict[str, Any] = _with_items(schema)
    return written


def _with_items(schema: Any) -> Any:
    """Give each array of fixed length one schema for its items: providers refuse arrays without `items`."""
    if isinstance(schema, list):
        return [_with_items(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: value if key in _DATA else _with_items(value) for key, value in schema.items()}
    for key in ("properties", "$defs", "patternProperties"):  # names of people's choice, and no keywords
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
