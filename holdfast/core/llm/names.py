"""How an agent names its LLM: `gpt-5-mini`, `anthropic/claude-sonnet-5`, `router/llama`; several are a fallback order.

1. `ENDPOINT/LLM` names an endpoint and the LLM as that endpoint names it. `BUILT_IN` endpoints always exist; others are
   configured. Only the first slash counts: `chat/meta-llama/Llama-4` is `meta-llama/Llama-4` at `chat`.
2. Any other name is that of an LLM at the default endpoint (`OPENAI_BASE_URL`), slashes included.
3. An order has up to `MAX_LLMS` LLMs, each of them once. In an order, a plain name is recorded as one of `chat`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from holdfast.core.base.text import is_blank

Api = Literal["chat", "messages", "responses"]
"""Chat Completions, Anthropic's Messages, OpenAI's Responses."""

BUILT_IN: Final[Mapping[str, Api]] = {"anthropic": "messages", "chat": "chat", "openai": "responses"}
"""The endpoints that need no configuration but a key, with their APIs. `chat` is the default endpoint."""

MAX_LLMS = 8
"""The most LLMs of one order."""

NAME_CHARS = 200
"""The most characters of a name."""


def name_problem(name: str) -> str:
    """Return why text cannot name an LLM; empty if it can."""
    if is_blank(name) or name != name.strip():
        return f"{name!r} is blank or has blanks around it"
    if len(name) > NAME_CHARS or not name.isprintable():
        return f"the name of an LLM is one line of at most {NAME_CHARS} printable characters"
    return ""


def order_problem(names: Sequence[str]) -> str:
    """Return why a list cannot be an order of LLMs; empty if it can."""
    if not 1 <= len(names) <= MAX_LLMS:
        return f"it has {len(names)} LLMs; list 1 to {MAX_LLMS}"
    if len(set(names)) < len(names):
        return "it has an LLM twice"
    return next(filter(None, map(name_problem, names)), "")


def is_reference(name: str, endpoints: Collection[str]) -> bool:
    """Whether a name begins with one of these endpoints."""
    endpoint, slash, llm = name.partition("/")
    return bool(slash and llm) and endpoint in endpoints


def split_reference(reference: str) -> tuple[str, str]:
    """Return the endpoint and the LLM of a reference."""
    endpoint, _, llm = reference.partition("/")
    return endpoint, llm


def recorded_llms(llm: str | Sequence[str], endpoints: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return an agent's LLMs as its run records them.

    Args:
        llm: The agent's own, or the worker's default.
        endpoints: The names of the worker's endpoints.

    Returns:
        The first LLM's name at its endpoint; and the references in order, none for a plain name alone.
    """
    if isinstance(llm, str):
        return (split_reference(llm)[1], (llm,)) if is_reference(llm, endpoints) else (llm, ())
    references = tuple(each if is_reference(each, endpoints) else f"chat/{each}" for each in llm)
    return split_reference(references[0])[1], tuple(dict.fromkeys(references))
