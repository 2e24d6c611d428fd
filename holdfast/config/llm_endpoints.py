"""Endpoints of LLMs that a project names: `[llm.NAME]` in `holdfast.toml`, or JSON in `HOLDFAST_LLM_ENDPOINTS`.

    [llm.router]
    api = "chat"
    base_url = "https://router.example/v1"
    key = "ROUTER_API_KEY"

The key is given by the name of the variable that holds it, in `.env` or the environment, never by its value. A folder
has no authority of its own, so it does not decide where a secret of the environment is sent: see `misdirected_key`.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator

from holdfast.config.endpoint import api_key, base_url, pasted
from holdfast.core.llm.names import BUILT_IN, Api

MAX_ENDPOINTS = 50
"""The most endpoints of a project."""

ADDRESSES: Final[Mapping[Api, str]] = {
    "chat": "https://api.openai.com/v1",
    "messages": "https://api.anthropic.com",
    "responses": "https://api.openai.com/v1",
}
"""The addresses of the companies that made the APIs."""

KEYS: Final[Mapping[str, str]] = {
    "chat": "OPENAI_API_KEY",
    "messages": "ANTHROPIC_API_KEY",
    "responses": "OPENAI_API_KEY",
}
"""The variables that usually hold their keys."""

VERSION: Final = "2023-06-01"
"""The version of the Messages API."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class EndpointSetting(BaseModel):
    """One endpoint, as a project names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    api: Api
    """Its API: `chat` (Chat Completions, as most servers have it), `responses` or `messages`."""
    base_url: str = ""
    """Its address, before the path of the API. Default: that of OpenAI or, for `messages`, of Anthropic."""
    key: str = ""
    """The variable that holds its key. Default: `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`; none if `base_url` is set."""
    secret: SecretStr | None = None
    """The key, read from its variable; None if it is not set, or if the endpoint needs none."""

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, url: str) -> str:
        return base_url(pasted(url)) if url.strip() else ""

    @field_validator("key")
    @classmethod
    def _check_reference(cls, key: str) -> str:
        if key and not _VARIABLE.fullmatch(key):
            raise ValueError("`key` is the name of a variable, such as ROUTER_API_KEY, and not the key itself")
        return key

    @model_validator(mode="before")
    @classmethod
    def _look_up(cls, given: Any, info: ValidationInfo) -> Any:
        """Read the key from its variable."""
        if not isinstance(given, dict) or "secret" in given:
            raise ValueError("write api, base_url and key = the name of the key's variable")
        variable = given.get("key") or _usual_key(given)
        text = pasted((info.context or {}).get(variable, "")) if isinstance(variable, str) else ""
        return {**given, "key": variable, **({"secret": api_key(text)} if text else {})}

    @property
    def address(self) -> str:
        """Its address."""
        return self.base_url or ADDRESSES[self.api]


def read_endpoints(value: Any, info: ValidationInfo) -> dict[str, EndpointSetting]:
    """Read endpoints by name, from JSON text.

    Args:
        value: The text.
        info: Its context is the environment that holds the keys.

    Raises:
        ValueError: It is something else; the message has no key.
    """
    try:
        tables = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        tables = None
    if not isinstance(tables, dict) or len(tables) > MAX_ENDPOINTS:
        raise ValueError(f"write a JSON object of at most {MAX_ENDPOINTS} endpoints by name")
    found = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name) or name in BUILT_IN or name == "default":
            raise ValueError(
                f"{name!a} cannot name an endpoint: a name has small letters, digits, '-' and '_', and is none of "
                f"{', '.join([*BUILT_IN, 'default'])}"
            )
        try:
            found[name] = EndpointSetting.model_validate(table, context=info.context)
        except ValidationError as error:
            raise ValueError(f"endpoint {name}: {_why(error)}") from None
    return found


def misdirected_key(tables: Mapping[str, Any], *, inherited: Collection[str]) -> str:
    """Return why a folder's file must not name these endpoints; empty if it may.

    A secret of the environment is sent to the address of the company whose key it is by its name. Any other address
    must come with a key from the folder's own `.env`, or the environment itself names the endpoints.

    Args:
        tables: The endpoints, as the file has them.
        inherited: The variables of the environment that no file of the folder sets.
    """
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        own = _usual_key(table)
        key = table.get("key") or own
        if isinstance(key, str) and key in inherited and key != own:
            to = table.get("base_url") or table.get("api")
            return (
                f"the endpoint {name} would send {key} of the environment to {to!a}: a file in a folder must not "
                "decide where your secrets are sent. Put the key into .env beside it, or set in the environment "
                f"HOLDFAST_LLM_ENDPOINTS={json.dumps({name: table})}"
            )
    return ""


def _usual_key(table: Mapping[str, Any]) -> str:
    """Return the variable of the key of an endpoint at its API's own address; empty for another address."""
    api = table.get("api")
    return KEYS.get(api, "") if isinstance(api, str) and not table.get("base_url") else ""


def _why(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg'].removeprefix('Value error, ')}".removeprefix(": ")
        for each in problems
    )
