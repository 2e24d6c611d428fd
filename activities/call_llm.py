"""`call_llm`: sends prepared bytes to an OpenAI-compatible endpoint, and sorts what comes back by who must act.

Temporal retries what may pass (429, 5xx, time-outs, connections); the run parks on what only a person can mend
(wrong key, unknown model); what the LLM did wrong goes back to the LLM, as part of the recorded reply.
"""

import time
from typing import Any

import httpx2
import openai
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.calling_run import calling_thread
from activities.clipping import clip_to
from activities.heartbeats import heartbeats
from activities.llm_replies import MAX_REPLY_BYTES, read_reply
from activities.outages import earlier_failures, heartbeat_of, leaving_trace
from activities.retry_after import retry_after
from activities.transcript_cache import Sessions
from holdfast.agents.catalog import Catalog
from holdfast.llm.messages import encode
from holdfast.run.compaction import summary_request
from holdfast.run.contracts import CONTEXT_TOO_LONG, LLM_REJECTED, LLMReply, LLMRequest
from holdfast.stores import ArtifactStore
from holdfast.tools.secrets import Secrets
from holdfast.transcript.prompt import request_body

REPLY_CHARS = 100_000
"""Longer text of a reply is kept in an artifact, and clipped in the log."""


class LLM:
    """Calls the LLM on behalf of runs.

    Args:
        client: Built with `max_retries=0`: retries belong to Temporal.
        catalog: Its tools check the arguments of the calls that come back.
        sessions: What this worker has read of each thread.
        artifacts: Where replies go that are too long for the log.
        secrets: What must not be recorded, whatever a provider says.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        catalog: Catalog,
        sessions: Sessions,
        artifacts: ArtifactStore,
        secrets: Secrets,
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._sessions = sessions
        self._artifacts = artifacts
        self._secrets = secrets

    @activity.defn
    async def call_llm(self, request: LLMRequest) -> LLMReply:
        """See `holdfast.run.contracts.call_llm`."""
        outage = earlier_failures(request)
        async with heartbeats(*heartbeat_of(outage, request)):
            session, messages = await self._sessions.read(request.transcript)
            tail = b""
            if request.compacting:
                instruction, tail = summary_request(tools=bool(session.spec.tools))
                messages = [*messages, instruction]
            body = request_body(session.prefix, messages, tail=tail)
            started = time.monotonic()
            with leaving_trace(request, outage, self._secrets):
                response = await self._post(body, session.spec.limits.llm_timeout)
            took = time.monotonic() - started
            reply = read_reply(
                response.content,
                spec=session.spec,
                tools=self._catalog.tools,
                step_id=f"call_{request.transcript.compactions}_{request.transcript.length}",
            )
            reply = await self._clip(reply)
            if not request.compacting:
                self._sessions.replied(reply.message)
            return reply.model_copy(
                update={
                    "request_id": response.headers.get("x-request-id"),
                    "duration_ms": round(took * 1000),
                    "attempt": activity.info().attempt,
                    "outage": outage,
                }
            )

    async def _clip(self, reply: LLMReply) -> LLMReply:
        """The reply as the log can hold it: a long text by head and tail; what is too large otherwise is refused."""
        message = reply.message
        if message is None:
            return reply
        artifact = ""
        if isinstance(message.content, str):
            text = await clip_to(self._artifacts, message.content, REPLY_CHARS, thread=calling_thread())
            message, artifact = message.model_copy(update={"content": text.content}), text.artifact
        if len(encode(message)) + sum(len(text.encode()) for text in reply.arguments.values()) > MAX_REPLY_BYTES:
            why = f"it is over {MAX_REPLY_BYTES:,} bytes long."
            return reply.model_copy(update={"message": None, "rejected": why, "problems": {}, "arguments": {}})
        return reply.model_copy(update={"message": message, "artifact": artifact})

    async def _post(self, body: bytes, timeout: float) -> httpx2.Response:
        try:
            return await self._client.post(
                "/chat/completions",
                content=body,
                cast_to=httpx2.Response,
                options={"timeout": timeout, "headers": {"Content-Type": "application/json"}},
            )
        except openai.APIStatusError as error:
            raise _sorted(error) from None
        except openai.APIConnectionError as error:
            # The client's own words ("Connection error.") do not say what happened; the cause does.
            reason = str(error.__cause__ or "") or error.message
            raise ApplicationError(f"{self._client.base_url}: {reason}", type=type(error).__name__) from None


def _sorted(error: openai.APIStatusError) -> ApplicationError:
    """A provider's refusal as an error that Temporal retries, or one that parks the run."""
    words = _words(error)
    if error.status_code in (408, 409, 425, 429) or error.status_code >= 500:
        return ApplicationError(words, type=type(error).__name__, next_retry_delay=retry_after(error.response.headers))
    kind = CONTEXT_TOO_LONG if error.code == "context_length_exceeded" else LLM_REJECTED
    return ApplicationError(words, type=kind, non_retryable=True)


def _words(error: openai.APIStatusError) -> str:
    """What the provider said, without the wrapping."""
    body: Any = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return f"{error.status_code}: {message or error.message}"[:2_000]
