"""Outcomes of tool calls that are safe to record: without secrets, and no larger than the log's limits.

If a text is too long, the log has its head, its tail and the address of an artifact that holds all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.tool_functions import in_thread, raise_if_stopped
from holdfast.core.llm.blocks import Content, InputBlocks, TextBlock, with_heading
from holdfast.core.log.events import CallResult, ToolStatus
from holdfast.core.log.references import left_out
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.decorator import Labelled
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.foreign_waits import ForeignTask, ServerQuestion
from holdfast.core.tools.partial import Partial, missing_text, shorten_missing
from holdfast.core.tools.results import NotAwaited, error_text, recordable_text, result_content
from holdfast.core.tools.secrets import Secrets
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.transcript.transcript import clip, partial_note
from holdfast.core.trust import Trust, least

MEDIA_BYTES = 500_000
"""The most bytes of images and files (in base64) in one result: Temporal allows 2 MB a payload."""

_LONG_TEXT = 64_000
"""Longer texts are processed in a thread; for shorter ones, starting the thread would take longer than the work."""

STACK_CHARS = 20_000
"""The most characters of a stack trace that are stored."""
STACK_SECONDS = 5.0
"""Seconds for storing one."""

CONVERSION_SECONDS = 20.0
"""Seconds for converting a result to text: fewer than Temporal's time-out adds to the tool's own time limit."""

T = TypeVar("T")

log = SafeLogger(__name__)


@dataclass(frozen=True)
class ClippedText:
    """A text as it enters the log."""

    content: str
    artifact: str = ""
    """Address of the complete text; empty if `content` is complete."""
    size: int = 0
    """Bytes of the complete text; 0 if `content` is complete."""


async def clip_to(store: ArtifactStore, text: str, limit: int, *, thread: str) -> ClippedText:
    """Clip `text` if it is longer than `limit` characters, and store all of it as an artifact."""
    if len(text) <= limit:
        return ClippedText(text)
    content = await asyncio.to_thread(text.encode, "utf-8", "replace")
    address = await store.put(content, thread=thread)
    return ClippedText(clip(text, limit, address=address), address, len(content))


async def in_thread_if_long(function: Callable[[Any], T], value: Any, *, size: int | None = None) -> T:
    """Return `function(value)`, computed in a thread if `value` is long; `size` is None if it is unknown."""
    return await in_thread(function, value) if size is None or size > _LONG_TEXT else function(value)


class RawResult(CallResult):
    """The result of a call before it is safe to record: it may contain secrets, and exceed the log's limits."""

    doubt: Literal["raised", "returned", "stopped", "running"] | None = None
    """Why the function's end leaves its effect in doubt: it raised · it returned `Unknown` · it took too
    long and was stopped · it took too long and may still be running."""
    settles_in: float | None = None
    """With the status `unknown`: seconds in which a request may still arrive."""
    changes: dict[str, Any] | None = None
    """The changes of the run's typed context, which hold no secrets."""
    unfit: str = ""
    """With the status `cannot`: a selector of the nodes that cannot make such calls; empty if this is about all."""
    question: ServerQuestion | None = None
    """What the server asks people before it continues."""
    server_state: str | None = None
    """The state that the server gets back with the answer."""
    task: ForeignTask | None = None
    """The task as which the call continues."""
    task_ended: bool = False
    """The call's task has ended without a result."""
    trace: str = ""
    """The stack trace of the tool's exception."""


@dataclass(frozen=True)
class Outcomes:
    """Builds the outcomes of one call."""

    artifacts: ArtifactStore
    thread: str
    request: ToolRequest
    """It has the fields that the run accepts, and the most characters of each text."""
    secrets: Secrets

    async def record(self, raw: RawResult) -> ToolOutcome:
        """Return the outcome of a call: its result, made safe to record."""
        status, failed = raw.status, raw.status in ("failed", "unknown")
        if status == "cannot" and not self.request.cannot:
            status, raw = "failed", raw.model_copy(update={"scope": None, "until": None})
        if raw.unfit and status == "cannot" and self.request.reroutes:  # the log keeps the beginning of its reason
            built = await self.build(status, raw.content, until=raw.until)
            return built.model_copy(update={"unfit": raw.unfit})
        content, missing = raw.content, ""
        if status == "ok" and raw.missing:
            # Redact before shortening: half a secret would not be found.
            missing = shorten_missing(recordable_text(await self._redact_text(raw.missing)))
            if not self.request.partial:
                content, missing = with_heading(partial_note(missing), content), ""
        return await self.build(
            status,
            content,
            trust=raw.trust,
            adopted=raw.adopted,
            duration_ms=raw.duration_ms,
            scope=raw.scope,
            until=raw.until,
            cause=raw.cause if self.request.failures and failed else None,
            settles_in=raw.settles_in if self.request.settles and raw.status == "unknown" else None,
            changes=raw.changes if status == "ok" else None,
            missing=missing,
            question=await self._question(raw),
            task=self._task(raw),
            task_ended=raw.task_ended,
            stack=await self._stack(raw.trace) if raw.trace and failed and self.request.stacks else "",
        )

    async def _question(self, raw: RawResult) -> ServerQuestion | None:
        """Return the question without secrets; the server's state is an artifact."""
        if raw.question is None:
            return None
        as_json = await self._redact_text(raw.question.model_dump_json())
        question, state = ServerQuestion.model_validate_json(as_json), raw.server_state
        if state is None:
            return question
        address = await self._store(partial(self.artifacts.put, state.encode(), thread=self.thread))
        return question.model_copy(update={"state": address})

    def _task(self, raw: RawResult) -> ForeignTask | None:
        if raw.task is None:
            return None
        return raw.task.model_copy(update={"message": recordable_text(self.secrets.redact(raw.task.message))})

    async def _stack(self, trace: str) -> str:
        """Store a stack trace; return its address, or nothing if it cannot be stored now: no outcome waits for it."""
        text = recordable_text(await self._redact_text(trace))
        if len(text) > STACK_CHARS:  # its end is nearest to the exception
            text = f"[the last {STACK_CHARS:,} of {len(text):,} characters]\n{text[-STACK_CHARS:]}"
        try:
            async with asyncio.timeout(STACK_SECONDS):
                return await self.artifacts.put(text.encode("utf-8", "replace"), thread=self.thread)
        except Exception as error:  # a user's own store may raise anything
            log.warning("stack_trace_not_stored", thread=self.thread, reason=error_text(error))
            return ""

    async def redact(self, content: Content) -> Content:
        """Return the content without secrets, for the middleware to see."""
        if isinstance(content, str):
            return await self._redact_text(content)
        return tuple(
            block.model_copy(update={"text": self.secrets.redact(block.text)})
            if isinstance(block, TextBlock)
            else block
            for block in content
        )

    async def build(self, status: ToolStatus, content: Content, **more: Any) -> ToolOutcome:
        """Build an outcome. Content that is left out is stored as an artifact.

        Args:
            status: How the call ended.
            content: The result of the tool.
            more: Further fields of the outcome.
        """
        if isinstance(content, str):
            clipped = await self._text(content)
            return ToolOutcome(
                status=status, content=clipped.content, artifact=clipped.artifact, size=clipped.size, **more
            )
        artifact, size = "", 0
        addresses: tuple[str, ...] = ()
        room = MEDIA_BYTES
        blocks: InputBlocks = ()
        for block in content:
            if isinstance(block, TextBlock):
                clipped = await self._text(block.text)
                artifact, size = artifact or clipped.artifact, size or clipped.size
                blocks += (TextBlock(text=clipped.content, provider=block.provider),)
                continue
            try:
                media = block.content()
            except ValueError:
                blocks += (TextBlock(text=f"[{block.type} left out: its data is not base64]"),)
                continue
            if len(block.data) <= room:
                room -= len(block.data)
                blocks += (block,)
            else:
                address = await self._store(partial(self.artifacts.put, media, thread=self.thread))
                addresses += (address,)
                blocks += (TextBlock(text=left_out(block.type, len(media), address)),)
        artifacts = addresses if self.request.names_artifacts else ()
        return ToolOutcome(status=status, content=blocks, artifact=artifact, size=size, artifacts=artifacts, **more)

    async def _text(self, text: str) -> ClippedText:
        # Redact before clipping: half a secret would not be found.
        redacted = recordable_text(await self._redact_text(text))
        return await self._store(lambda: clip_to(self.artifacts, redacted, self.request.clip, thread=self.thread))

    async def _redact_text(self, text: str) -> str:
        if not self.secrets.forms:
            return text
        # Not in the threads of tools: an effect has happened, and must not wait for those that hang.
        redact = self.secrets.redact
        return await asyncio.to_thread(redact, text) if len(text) > _LONG_TEXT else redact(text)

    async def _store(self, put: Callable[[], Awaitable[T]]) -> T:
        """Store an artifact. The effect has happened, so retry while the store is unavailable."""
        while True:
            try:
                return await put()
            except Exception as error:  # a user's own store may raise anything
                log.warning("artifact_not_stored_yet", thread=self.thread, reason=str(error))
                await asyncio.sleep(1)


async def result_of_value(spec: ToolSpec, value: Any) -> RawResult:
    """Return the result of a function that has returned a value.

    If the value cannot be shown, a read has failed. An effect has happened nevertheless, so its call is `ok`: the LLM
    would repeat a `failed` one.

    Args:
        spec: The tool.
        value: The return value of its function, or of its check.
    """
    try:
        result, trust, missing = _unwrapped(value)
        # The size of a value other than text is not known before it is encoded.
        size = len(result) if isinstance(result, str) else None
        async with asyncio.timeout(CONVERSION_SECONDS):
            content = await in_thread_if_long(result_content, result, size=size)
            missing = missing if isinstance(missing, str) else await in_thread(missing_text, missing)
    except BaseException as error:  # the methods of the value are the user's, and may raise anything
        raise_if_stopped(error)
        log.warning("tool_result_not_shown", tool=spec.name, reason=error_text(error))
        reason = f"its result cannot be shown: {error_text(error)}"
        quoting: Trust | None = "web" if _is_labelled(value) else None  # the error may quote the result
        if spec.effect is Effect.READ:
            return RawResult(status="failed", content=f"{spec.name} returned, but {reason}", trust=quoting)
        if isinstance(error, NotAwaited):
            return RawResult(
                status="unknown", content=f"{spec.name} returned, but may not have begun: {reason}", trust=quoting
            )
        return RawResult(status="ok", content=f"{spec.name} returned, so it took effect; {reason}", trust=quoting)
    return RawResult(status="ok", content=content, trust=trust, missing=missing)


def _unwrapped(value: Any) -> tuple[Any, Trust | None, Any]:
    """Return the result itself, its trust level (None if the tool's applies), and what is missing from it.

    Raises:
        ValueError: There is no such level.
    """
    trust: Trust | None = None
    missing: Any = ""
    while isinstance(value, Labelled | Partial):
        if isinstance(value, Partial):
            missing = value.missing
        elif value.trust not in get_args(Trust):
            raise ValueError(f"Labelled(trust={value.trust!r}) is not one of {', '.join(get_args(Trust))}")
        else:
            trust = value.trust if trust is None else least(trust, value.trust)
        value = value.result
    return value, trust, missing


def _is_labelled(value: Any) -> bool:
    return isinstance(value, Labelled) or (isinstance(value, Partial) and isinstance(value.result, Labelled))
