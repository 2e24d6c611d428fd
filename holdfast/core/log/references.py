"""The artifacts that an event refers to."""

import re
from collections.abc import Iterator

from holdfast.core.llm.blocks import TextBlock, blocks_of
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    AnswerRequested,
    LLMReplied,
    ReconcileRequested,
    ToolCallFinished,
)

_LEFT_OUT = re.compile(r"\[\w+ of [\d,]+ bytes left out: it is the artifact (sha256:[0-9a-f]{64})\]", re.ASCII)


def left_out(kind: str, size: int, address: str) -> str:
    """Return the text that replaces an image or a file too large for the log in a tool's result."""
    return f"[{kind} of {size:,} bytes left out: it is the artifact {address}]"


def artifacts_of(event: AgentEvent, *, named: bool, stacks: bool = True) -> Iterator[str]:
    """Yield the addresses of the artifacts that the worker stored with an event.

    An address that a text merely mentions does not count. If `named` is false, a block that consists of the text of
    `left_out` counts even if the tool wrote it, because such an event has no other trace of its omitted blocks.

    Args:
        event: The event.
        named: Whether the event was recorded at a feature level at which results name the artifacts of omitted blocks
            (`holdfast.core.run.state.features.RESULT_NAMES_ARTIFACTS`).
        stacks: Whether to include stack traces, which people may read, but not the LLM.
    """
    if isinstance(event, AgentLoaded):
        for skill in event.spec.skills:
            yield from skill.files.values()
    if isinstance(event, LLMReplied | ToolCallFinished) and event.artifact:
        yield event.artifact
    if stacks and isinstance(event, ToolCallFinished | ReconcileRequested) and event.stack:
        yield event.stack
    if isinstance(event, ToolCallFinished):
        yield from event.artifacts
    if isinstance(event, AnswerRequested) and event.request.question and event.request.question.state:
        yield event.request.question.state
    if isinstance(event, ToolCallFinished) and not named and not isinstance(event.content, str):
        for block in blocks_of(event.content):
            if isinstance(block, TextBlock) and (found := _LEFT_OUT.fullmatch(block.text)):
                yield found[1]
