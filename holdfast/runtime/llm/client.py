"""The client of the LLM endpoint: the one that is configured, or the scripted LLM in its place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import openai

from holdfast.errors import SettingsError
from holdfast.runtime.config.loading import load
from holdfast.runtime.config.settings import EXAMPLE_SCRIPT, Settings
from holdfast.runtime.llm.script import Script, default_script
from holdfast.runtime.llm.scripted_server import ScriptedLLM


@contextmanager
def llm_client(settings: Settings, *, dev: bool, say: Callable[[str], None]) -> Iterator[openai.AsyncOpenAI]:
    """A client that leaves retries to Temporal, for the length of the block.

    Args:
        settings: Key and endpoint; with neither, and `dev`, the scripted LLM is served on this machine.
        dev: Whether the scripted LLM may stand in.
        say: Told when it does.

    Raises:
        SettingsError: Neither key nor endpoint, and not `dev`.
    """
    if not settings.scripted:
        # An endpoint on one's own machine often needs no key, but the client insists on one.
        key = settings.openai_api_key.get_secret_value() if settings.openai_api_key else "none"
        yield openai.AsyncOpenAI(api_key=key, base_url=settings.openai_base_url, max_retries=0)
    elif dev:
        with ScriptedLLM(_script(settings)) as llm:
            say("LLM        scripted, for OPENAI_API_KEY and OPENAI_BASE_URL are not set")
            # Not through a proxy that the environment names: it is on this machine.
            direct = openai.DefaultAsyncHttpxClient(trust_env=False)
            yield openai.AsyncOpenAI(api_key="scripted", base_url=llm.base_url, max_retries=0, http_client=direct)
    else:
        raise SettingsError(
            "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. Set one, or use --dev for a scripted LLM."
        )


def _script(settings: Settings) -> Script:
    """What the scripted LLM says: the script that is set, the example's for the example, else that it is none."""
    reference = settings.script or (EXAMPLE_SCRIPT if settings.offers_example else None)
    return load(reference, object) if reference else default_script  # type: ignore[return-value]  # no class to check
