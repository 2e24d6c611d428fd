"""`call_llm`: sends prepared bytes to the endpoint of an LLM, and sorts failures by who must act.

Temporal retries transient errors (429, 5xx, time-outs, connections, and a success without a reply, such as a proxy's
web page); errors that only a person can fix (wrong key, unknown model) block the run; the LLM's own mistakes go back to
the LLM, as part of the recorded reply. If the agent has several LLMs, the next one takes over for one that keeps
failing (`holdfast.activities.llm_calls.fallback`).
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import openai
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import CallingRun, calling_thread
from holdfast.activities.heartbeats import earlier_details, heartbeats
from holdfast.activities.llm_calls.fallback import Fallback, Turn
from holdfast.activities.llm_calls.llm_replies import (
    MAX_REPLY_BYTES,
    NotAReply,
    paused_reply,
    read_reply,
    reply_from_middleware,
)
from holdfast.activities.llm_calls.outages import (
    Attempt,
    heartbeat_details,
    lost_attempts,
    not_a_reply,
    provider_error,
    record_failure,
)
from holdfast.activities.llm_calls.reply_streams import ReplyStreams, WatchedReply, is_about_streaming
from holdfast.activities.llm_calls.transcript_cache import CachedTranscript, TranscriptCache
from holdfast.activities.middleware import MiddlewareStack, RunReader
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.tool_outcomes import clip_to
from holdfast.activities.trace_context import trace_headers
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.middleware import LLMCall, LLMResult
from holdfast.core.llm.adapters import Decoded
from holdfast.core.llm.blocks import TextBlock, blocks_of
from holdfast.core.llm.finish_reasons import WRITTEN_CALL
from holdfast.core.llm.messages import AssistantMessage, Usage, encode
from holdfast.core.llm.names import split_reference
from holdfast.core.llm.tokens import tokens_of, tokens_of_request
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_LOST
from holdfast.core.run.contracts.llm_calls import Failures, LLMReply, LLMRequest
from holdfast.core.run.rules.compaction import SUMMARY_REQUEST
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.endpoints import Endpoints, Route
from holdfast.endpoints.prices import cost_of

log = SafeLogger(__name__)

REPLY_CHARS = 100_000
"""Longer reply text is stored as an artifact, and clipped in the log."""

_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Errors that are raised before any part of a request is sent."""

UNDERCOUNT_FACTOR = 2
"""If the estimate from a request's bytes exceeds the provider's count by more than this factor, the count lacks a part,
such as cached tokens, and does not show how full the context is."""

MAX_PAUSES = 20
"""How often one reply may be paused by its provider (`pause_turn`); then it counts as broken off."""

_REQUEST_IDS = ("x-request-id", "request-id")

_TIMEOUT_STATUSES = (504, 524)
"""Statuses of a gateway that no longer waits for the endpoint, which may still answer the request."""


@dataclass(frozen=True)
class _SentRequest:
    """A request to the LLM, with everything that is needed to read its reply."""

    body: bytes
    request: LLMRequest
    cached: CachedTranscript
    attempt: Attempt
    messages: list[bytes]
    """The messages of the request, encoded."""
    asked: bool
    """The last message asks whether the call in a reply's text is meant as one."""
    run: CallingRun | None
    unstreamed: bytes | None = None
    """The same request without streaming; None if `body` does not ask for a stream."""

    @property
    def decoding(self) -> dict[str, Any]:
        """The arguments of `paused_reply`."""
        ref = self.request.transcript
        step_id = f"call_{ref.compactions}_{ref.length}"
        return {"adapter": self.cached.route.adapter, "used": self.cached.call_ids, "step_id": step_id}

    @property
    def checking(self) -> dict[str, Any]:
        """The arguments of `reply_from_middleware` that depend on the request."""
        rest = {name: value for name, value in self.decoding.items() if name != "adapter"}
        return {**rest, "spec": self.cached.spec, "llm": self.cached.route.llm}

    @property
    def reply_arguments(self) -> dict[str, Any]:
        """The arguments of `read_reply` that depend on the request."""
        return {**self.decoding, **self.checking}


class LLM:
    """Calls the LLM on behalf of runs.

    Args:
        endpoints: The worker's endpoints.
        catalog: Its tools check the arguments of the calls in a reply.
        transcripts: This worker's cache of transcripts.
        artifacts: Stores replies that are too long for the log.
        secrets: Redacted from provider errors before they are recorded.
        middleware: The middleware; None for none.
        streams: Streams the replies to readers; None if nobody can read them.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        catalog: Catalog,
        transcripts: TranscriptCache,
        artifacts: ArtifactStore,
        secrets: Secrets,
        middleware: MiddlewareStack | None = None,
        streams: ReplyStreams | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._fallback = Fallback(secrets)
        self._catalog = catalog
        self._transcripts = transcripts
        self._artifacts = artifacts
        self._secrets = secrets
        self._middleware = middleware
        self._streams = streams if middleware is None or middleware.streams else None
        self._estimates = False
        """Whether it has been logged that usage is estimated."""

    @activity.defn
    async def call_llm(self, request: LLMRequest) -> LLMReply:
        """See `holdfast.core.run.contracts.table.CALL_LLM`."""
        failures = earlier_details(Failures, request)
        attempt = Attempt(lost_attempts(failures) if request.budgeted else 0)
        async with heartbeats(*(heartbeat_details(failures, request) if failures else ())):
            try:
                reply = await self._attempt_call(request, attempt, failures)
            except Exception as error:
                record_failure(error, request, failures, attempt, self._secrets)
                raise
            outage = failures.outage if failures else None
            return reply.model_copy(update={"attempt": activity.info().attempt, "outage": outage})

    async def _attempt_call(self, request: LLMRequest, attempt: Attempt, before: Failures | None) -> LLMReply:
        """Make one attempt, and return the reply as it is recorded."""

        def choose(spec: AgentSpec) -> Route:
            order = self._endpoints.routes(spec)
            match order:
                case [Route() as only]:  # an agent with one LLM has no fallback
                    attempt.turn = Turn(order, only)
                case _:
                    attempt.turn = self._fallback.turn(order, before)
            return attempt.turn.route

        cached, messages = await self._transcripts.read(request, choose)
        run, cached.run = cached.run, None  # its answers would keep the run's lines in memory
        adapter, client = cached.route.adapter, cached.route.endpoint.client
        asked = bool(messages) and WRITTEN_CALL.encode() in messages[-1]
        if request.compacting:
            messages = [*messages, adapter.encode(SUMMARY_REQUEST)]
        plain = adapter.body(cached.prefix, messages, calls=not request.compacting)
        streams = None if request.compacting or run is None else self._streams
        body = streams.asking(plain, adapter, client) if streams else plain
        attempt.body = body
        if attempt.lost:
            why = "an attempt before this one may have cost something: the run charges it, and makes the call again"
            raise ApplicationError(why, type=LLM_LOST, non_retryable=True)
        unstreamed = None if body == plain else plain
        sent = _SentRequest(body, request, cached, attempt, messages, asked, run, unstreamed)
        reply = await self._reply(sent)
        # The message of an argument's validator may contain anything.
        problems = {call: self._secrets.redact(why) for call, why in reply.problems.items()}
        reply = await self._clip(self._add_cost(reply.model_copy(update={"problems": problems}), sent))
        reply = reply.model_copy(update=self._origin(attempt))
        if not request.compacting:
            self._transcripts.add_reply(reply.message)
        return reply

    def _origin(self, attempt: Attempt) -> dict[str, Any]:
        """Return which endpoint an attempt called, and the LLMs before it in the agent's order."""
        turn = attempt.turn
        if turn is None or not turn.route.reference:
            return {}
        return {"endpoint": split_reference(turn.route.reference)[0], "passed_over": turn.earlier}

    async def _reply(self, sent: _SentRequest) -> LLMReply:
        """Call the LLM within the middleware, and read its reply."""
        if not self._middleware:
            return await self._call(sent, {})
        received: LLMReply | None = None

        async def make(headers: Mapping[str, str]) -> LLMResult:
            nonlocal received
            received = await self._call(sent, headers)
            return LLMResult(received.message, received.usage, received.llm)

        info, reader = activity.info(), RunReader(self._transcripts, sent.request.transcript.length)
        call = LLMCall(
            thread=calling_thread(),
            agent=sent.cached.spec.name,
            attempt=info.attempt,
            _reader=reader,
            compacting=sent.request.compacting,
            body=sent.body,
        )
        result, own = await self._middleware.llm(call, make)
        if own and received:
            return received
        return reply_from_middleware(received, result, tools=self._readers(sent), **sent.checking)

    def _readers(self, sent: _SentRequest) -> Mapping[str, Tool]:
        return self._catalog.readers(sent.cached.spec.name)

    async def _call(self, sent: _SentRequest, headers: Mapping[str, str]) -> LLMReply:
        attempt = sent.attempt
        assert attempt.turn is not None
        streams = None if sent.unstreamed is None else self._streams
        adapter = sent.cached.route.adapter
        try:
            with streams.watching(sent.run, adapter) if streams and sent.run else nullcontext() as live:
                reply = await self._receive(sent, headers, live)
                if live:
                    live.end(reply.message)
        except ApplicationError as error:
            raise self._fallback.after(attempt.turn, error, status=attempt.status, costly=attempt.costly) from None
        self._fallback.answered(attempt.turn)
        return reply

    async def _receive(self, sent: _SentRequest, headers: Mapping[str, str], live: WatchedReply | None) -> LLMReply:
        """Send the request, and read the reply: all of it, if the provider pauses its turn."""
        started, costly, route = time.monotonic(), sent.attempt.costly, sent.cached.route
        response = await self._post(sent, headers)
        parsed = live.answer(response.content) if live else None
        paused: Decoded | None = None
        for _ in range(MAX_PAUSES):
            if (more := paused_reply(response.content, paused, parsed=parsed, **sent.decoding)) is None:
                break
            paused, sent.attempt.usage = more, more.usage
            if live:
                live.expect(paused.message)
            response = await self._post(self._continuing(sent, paused), headers, spent=time.monotonic() - started)
            parsed = live.answer(response.content) if live else None
        duration = time.monotonic() - started
        try:
            tools = self._readers(sent)
            reply = read_reply(
                response.content,
                tools=tools,
                asked=sent.asked,
                parsed=parsed,
                before=paused,
                **sent.reply_arguments,
            )
        except NotAReply as error:
            began = paused is not None or (live is not None and live.began)
            sent.attempt.costly = costly or not error.refused or began
            if error.too_long:
                raise ApplicationError(f"{error}", type=CONTEXT_TOO_LONG, non_retryable=True) from None
            raise not_a_reply(error, response, route.endpoint.client.base_url, self._secrets) from None
        if self._streams and parsed is not None and not reply.usage.prompt_tokens:
            self._streams.disable(route.adapter, route.endpoint.client, "its streams report no usage")
        priced = self._add_cost(reply, sent)
        sent.attempt.usage, sent.attempt.cost = priced.usage, priced.cost
        ids = (response.headers.get(name) for name in _REQUEST_IDS)
        metadata = {"request_id": next(filter(None, ids), None), "duration_ms": round(duration * 1000)}
        return reply.model_copy(update=metadata)

    def _continuing(self, sent: _SentRequest, paused: Decoded) -> _SentRequest:
        """Return the request for the rest of a reply that the provider has paused."""
        assert paused.message is not None
        route = sent.cached.route
        messages = [*sent.messages, route.adapter.encode(paused.message)]
        plain = route.adapter.body(sent.cached.prefix, messages, calls=not sent.request.compacting)
        if self._streams is None or sent.unstreamed is None:
            return replace(sent, body=plain)
        body = self._streams.asking(plain, route.adapter, route.endpoint.client)
        return replace(sent, body=body, unstreamed=None if body == plain else plain)

    def _add_cost(self, reply: LLMReply, sent: _SentRequest) -> LLMReply:
        """Add the tokens that the provider did not count, and the cost if the run asks for it."""
        reply = self._estimate_usage(reply, sent.body)
        most = UNDERCOUNT_FACTOR * reply.usage.prompt_tokens
        # Most counts exceed the estimate from the bytes alone: then images and files are not searched for.
        if sent.request.sized and tokens_of(sent.body) > most and (tokens := tokens_of_request(sent.body)) > most:
            reply = reply.model_copy(update={"request_tokens": tokens})
        if not sent.request.priced:
            return reply
        cost = cost_of(reply.llm, reply.usage)
        cost = cost_of(sent.cached.route.llm, reply.usage) if cost is None else cost  # a free reply costs 0
        return reply.model_copy(update={"cost": cost})

    def _estimate_usage(self, reply: LLMReply, body: bytes) -> LLMReply:
        """Estimate the tokens of a request that the provider did not count: they trigger context compaction."""
        if reply.usage.prompt_tokens:
            return reply
        if not self._estimates:
            log.warning("usage_estimated", llm=reply.llm, reason="the endpoint reports no usage; costs are estimates")
            self._estimates = True
        encoded = encode(reply.message) if reply.message else b""
        usage = Usage(
            prompt_tokens=tokens_of_request(body),
            completion_tokens=reply.usage.completion_tokens or tokens_of(encoded),
        )
        return reply.model_copy(update={"usage": usage})

    async def _clip(self, reply: LLMReply) -> LLMReply:
        """Make a reply fit the log: clip long text to its head and tail; reject a reply that is too large even then."""
        message = reply.message
        if message is None:
            return reply
        artifact = ""
        blocks = list(blocks_of(message.content))
        for index, block in enumerate(blocks):
            if isinstance(block, TextBlock) and len(block.text) > REPLY_CHARS:
                text = await clip_to(self._artifacts, block.text, REPLY_CHARS, thread=calling_thread())
                blocks[index], artifact = block.model_copy(update={"text": text.content}), text.artifact
        if artifact:
            message = AssistantMessage(content=tuple(blocks), provider=message.provider)
        if len(encode(message)) + sum(len(text.encode()) for text in reply.arguments.values()) > MAX_REPLY_BYTES:
            why = f"it is over {MAX_REPLY_BYTES:,} bytes long."
            return reply.model_copy(update={"message": None, "rejected": why, "problems": {}, "arguments": {}})
        return reply.model_copy(update={"message": message, "artifact": artifact})

    async def _post(self, sent: _SentRequest, headers: Mapping[str, str], *, spent: float = 0) -> httpx2.Response:
        timeout, costly = sent.cached.spec.limits.llm_timeout, sent.attempt.costly
        route = sent.cached.route
        client = route.endpoint.client
        sent.attempt.costly = True  # until an answer shows that it was not
        try:
            async with asyncio.timeout(timeout - spent):  # the client's own limits each read, and not their sum
                return await client.post(
                    route.adapter.path,
                    content=sent.body,
                    cast_to=httpx2.Response,
                    options={
                        "timeout": timeout,
                        "headers": {
                            **trace_headers.get(),
                            **route.endpoint.headers,
                            **headers,
                            "Content-Type": "application/json",
                        },
                    },
                )
        except TimeoutError:
            why = f"{client.base_url}: no whole response within {timeout:g} s"
            raise ApplicationError(why, type=openai.APITimeoutError.__name__) from None
        except openai.APIStatusError as error:
            if self._streams and sent.unstreamed is not None and is_about_streaming(error):
                sent.attempt.costly, sent.attempt.body = costly, sent.unstreamed
                response = await self._post(replace(sent, body=sent.unstreamed, unstreamed=None), headers, spent=spent)
                why = f"it answers {error.status_code} to a request for a stream"
                self._streams.disable(route.adapter, client, why)
                return response
            sent.attempt.status = error.status_code
            sent.attempt.costly = costly or error.status_code in _TIMEOUT_STATUSES
            raise provider_error(error) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, _UNSENT):
                sent.attempt.costly = costly
            # The client's own message is only "Connection error."; the cause is specific.
            reason = str(error.__cause__ or "") or error.message
            raise ApplicationError(f"{client.base_url}: {reason}", type=type(error).__name__) from None
