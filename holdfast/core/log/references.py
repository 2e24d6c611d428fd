"""Which artifacts an event refers to."""

import re
from collections.abc import Iterator

from holdfast.core.llm.blocks import TextBlock, blocks_of
from holdfast.core.log.events import AgentEvent, AgentLoaded, LLMReplied, ToolCallFinished

_LEFT_OUT = re.compile(r"\[\w+ of [\d,]+ bytes left out: it is the artifact (sha256:[0-9a-f]{64})\]", re.ASCII)


def left_out(kind: str, size: int, address: str) -> str:
    """Return the text that stands in a tool's result for an image or a file that is too large for the log."""
    return f"[{kind} of {size:,} bytes left out: it is the artifact {address}]"


def artifacts_of(event: AgentEvent, *, named: bool) -> Iterator[str]:
    """Yield the addresses of the artifacts that the worker stored with an event.

    An address that a text merely mentions is none. Where `named` is false, a tool can write the whole text of
    `left_out` in a block of its own, and it counts: such an event has no other sign of what was left out of it.

    Args:
        event: The event.
        named: The event was recorded at a feature level at which results name the artifacts of what was left out
            (`holdfast.core.run.state.features.RESULT_NAMES_ARTIFACTS`).
    """
    if isinstance(event, AgentLoaded):
        for skill in event.spec.skills:
            yield from skill.files.values()
    if isinstance(event, LLMReplied | ToolCallFinished) and event.artifact:
        yield event.artifact
    if isinstance(event, ToolCallFinished):
        yield from event.artifacts
    if isinstance(event, ToolCallFinished) and not named and not isinstance(event.content, str):
        for block in blocks_of(event.content):
            if isinstance(block, TextBlock) and (found := _LEFT_OUT.fullmatch(block.text)):
                yield found[1]
