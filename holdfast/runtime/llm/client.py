"""The client of the LLM endpoint: of the configured one, or of the scripted LLM in its place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import openai

from holdfast.errors import LoadError, SettingsError
from holdfast.runtime.config.loading import load
from holdfast.runtime.config.settings import EXAMPLE_SCRIPT, Settings
from holdfast.runtime.llm.script import Script, default_script
from holdfast.runtime.llm.scripted_server import ScriptedLLM


@contextmanager
def llm_client(settings: Settings, *, dev: bool, say: Callable[[str], None]) -> Iterator[openai.AsyncOpenAI]:
    """Give a client without retries of its own during the block; serve the scripted LLM if that is needed.

    Args:
        settings: Key and endpoint; without either, and with `dev`, the scripted LLM is used.
        dev: Whether the scripted LLM may be used.
        say: Prints a line that says so.

    Raises:
        SettingsError: Neither key nor endpoint, and not `dev`.
    """
    if not settings.scripted:
        # A local endpoint often needs no key, but the client requires one.
        key = settings.openai_api_key.get_secret_value() if settings.openai_api_key else "none"
        yield openai.AsyncOpenAI(api_key=key, base_url=settings.openai_base_url, max_retries=0)
    elif dev:
        with ScriptedLLM(_script(settings)) as llm:
            say("LLM        scripted, because OPENAI_API_KEY and OPENAI_BASE_URL are not set")
            yield llm.client()
    else:
        raise SettingsError(
            "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. Set one, or use --dev for a scripted LLM."
        )


def _script(settings: Settings) -> Script:
    """The configured script, or the example's for the example, or one that says how to configure an LLM."""
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
