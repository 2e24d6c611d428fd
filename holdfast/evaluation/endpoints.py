"""The LLM of reruns: a configured one, a script, or the recorded replies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.endpoints.script import Script
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.evaluation.replies import RecordedReplies

if TYPE_CHECKING:
    import openai

    from holdfast.endpoints.endpoints import Endpoints


@dataclass(frozen=True)
class Endpoint:
    """The LLM of reruns."""

    client: "openai.AsyncOpenAI | Endpoints"
    default: str | tuple[str, ...]
    """The LLM of agents that select none."""
    llm: str | None = None
    """The LLM of all agents; None for their own."""
    recorded: RecordedReplies | None = None
    """The script of recorded replies, if that is the LLM."""


@asynccontextmanager
async def scripted(script: Script | RecordedReplies) -> AsyncIterator[Endpoint]:
    """Serve a script on loopback for a block, as the LLM of reruns."""
    with ScriptedLLM(script) as llm:
        async with llm.client() as client:
            yield Endpoint(client, "scripted", recorded=script if isinstance(script, RecordedReplies) else None)
