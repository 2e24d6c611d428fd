"""Outcomes of tool calls that are safe to record: without secrets, and no larger than the log's limits."""

import asyncio
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from holdfast.activities.clipping import Clipped, clip_to
from holdfast.llm.blocks import Content, HeardBlocks, Media, TextBlock
from holdfast.log.events import ToolStatus
from holdfast.run.contracts import ToolOutcome
from holdfast.stores import ArtifactStore
from holdfast.tools.secrets import Secrets

MEDIA_BYTES = 500_000
"""The most bytes of images and files (in base64) in one result: Temporal allows 2 MB a payload."""

_LONG = 64_000
"""Longer texts are processed in a thread; for shorter ones, starting the thread would take longer than the work."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def in_thread_if_long(function: Callable[[Any], T], value: Any, *, size: int | None = None) -> T:
    """Return `function(value)`, computed in a thread if `value` is long; `size` None for a size that is unknown."""
    return await asyncio.to_thread(function, value) if size is None or size > _LONG else function(value)


@dataclass(frozen=True)
class Outcomes:
    """Builds the outcomes of one call."""

    artifacts: ArtifactStore
    thread: str
    limit: int
    """How many characters of each text are kept."""
    secrets: Secrets

    async def build(self, status: ToolStatus, content: Content, **more: Any) -> ToolOutcome:
        """Build an outcome. What is left out is stored as an artifact.

        Args:
            status: How the call ended.
            content: What the tool returned.
            more: Further fields of the outcome.
        """
        if isinstance(content, str):
            clipped = await self._text(content)
            return ToolOutcome(
                status=status, content=clipped.content, artifact=clipped.artifact, size=clipped.size, **more
            )
        artifact, size = "", 0
        room = MEDIA_BYTES
        blocks: HeardBlocks = ()
        for block in content:
            if isinstance(block, TextBlock):
                clipped = await self._text(block.text)
                artifact, size = artifact or clipped.artifact, size or clipped.size
                blocks += (TextBlock(text=clipped.content, provider=block.provider),)
            elif len(block.data) <= room and _is_base64(block.data):
                room -= len(block.data)
                blocks += (block,)
            else:
                blocks += (TextBlock(text=await self._left_out(block)),)
        return ToolOutcome(status=status, content=blocks, artifact=artifact, size=size, **more)

    async def _text(self, text: str) -> Clipped:
        # Redact before clipping: half a secret would not be found.
        redacted = await in_thread_if_long(self.secrets.redact, text, size=len(text))
        return await self._stored(lambda: clip_to(self.artifacts, redacted, self.limit, thread=self.thread))

    async def _left_out(self, block: Media) -> str:
        """Say what is left out of the log, and where it is."""
        kind = type(block).model_fields["type"].default
        if not _is_base64(block.data):
            return f"[{kind} left out: its data is not base64]"
        content = binascii.a2b_base64(block.data)
        address = await self._stored(lambda: self.artifacts.put(content, thread=self.thread))
        return f"[{kind} of {len(content):,} bytes left out: it is the artifact {address}]"

    async def _stored(self, store: Callable[[], Awaitable[T]]) -> T:
        """Store an artifact. The effect has happened, so retry while the store is unavailable."""
        while True:
            try:
                return await store()
            except Exception as error:  # a user's own store may raise anything
                log.warning("artifact_not_stored_yet", thread=self.thread, reason=str(error))
                await asyncio.sleep(1)


def _is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True
