"""The client of the LLM endpoint: of the configured one, or of the scripted LLM in its place."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai

from holdfast.config.endpoint import pasted
from holdfast.config.loading import load
from holdfast.config.settings import EXAMPLE_SCRIPT, Settings
from holdfast.endpoints.http_client import http_client
from holdfast.endpoints.script import Script, default_script
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.errors import LoadError, SettingsError

DEFAULT_URL = "https://api.openai.com/v1"

_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
"""Variables that the client itself reads, and the headers that it sends them in."""


@contextmanager
def llm_client(settings: Settings, *, dev: bool, say: Callable[[str], None]) -> Iterator[openai.AsyncOpenAI]:
    """Yield a client without its own retries; serve the scripted LLM during the block if it is needed.

    Args:
        settings: Key and endpoint; without either, and with `dev`, the scripted LLM is used.
        dev: Whether the scripted LLM may be used.
        say: Called with a line if the scripted LLM is used.

    Raises:
        SettingsError: Neither key nor endpoint, and not `dev`.
    """
    if not settings.scripted:
        # A local endpoint often needs no key, but the client requires one.
        key = settings.openai_api_key.get_secret_value() if settings.openai_api_key else "none"
        url = settings.openai_base_url or DEFAULT_URL  # the client itself would use a blank variable as an address
        yield openai.AsyncOpenAI(
            api_key=key, base_url=url, max_retries=0, http_client=http_client(url), default_headers=_own_headers()
        )
    elif dev:
        with ScriptedLLM(_script(settings)) as llm:
            say("LLM        scripted, because OPENAI_API_KEY and OPENAI_BASE_URL are not set")
            yield llm.client()
    else:
        raise SettingsError(
            "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. Set one, or use --dev for a scripted LLM."
        )


def _own_headers() -> dict[str, Any]:
    """Return headers from the client's own variables, without pasted quotes and spaces; blank values are omitted."""
    headers: dict[str, Any] = {}
    for variable, header in _HEADERS.items():
        if (text := os.environ.get(variable)) is None:
            continue
        value = pasted(text)
        if not (value.isascii() and value.isprintable()):
            raise SettingsError(f"{variable} has characters that no header can carry: correct it, or unset it.")
        headers[header] = value or openai.Omit()
    return headers


def _script(settings: Settings) -> Script:
    """Return the configured script, the example's for the example, or one that replies how to configure an LLM."""
    reference = settings.script or (EXAMPLE_SCRIPT if settings.offers_example else None)
    if reference is None:
        return default_script
    script = load(reference, object)
    if not callable(script):
        raise LoadError(
            f"'{reference}' is a {type(script).__name__}, not a script. A script is a function of the conversation: "
            "for a list of replies, write steps([…])."
        )
    return script
