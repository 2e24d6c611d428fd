"""Which artifacts an event refers to."""

import re
from collections.abc import Iterator

from holdfast.llm.blocks import TextBlock, blocks_of
from holdfast.log.events import AgentEvent, AgentLoaded, LLMReplied, ToolCallFinished

_LEFT_OUT = re.compile(r"\[\w+ of [\d,]+ bytes left out: it is the artifact (sha256:[0-9a-f]{64})\]", re.ASCII)


def left_out(kind: str, size: int, address: str) -> str:
    """Return the text that stands in a tool's result for an image or a file that is too large for the log."""
    return f"[{kind} of {size:,} bytes left out: it is the artifact {address}]"


def artifacts_of(event: AgentEvent) -> Iterator[str]:
    """Yield the addresses of the artifacts that the worker stored with an event.

    An address that a text merely mentions is none. A tool can write the whole text of `left_out` in a block of its
    own; that names an artifact only to those who know its digest, which is to say its content.
    """
    if isinstance(event, AgentLoaded):
        for skill in event.spec.skills:
            yield from skill.files.values()
    if isinstance(event, LLMReplied | ToolCallFinished) and event.artifact:
        yield event.artifact
    if isinstance(event, ToolCallFinished) and not isinstance(event.content, str):
        for block in blocks_of(event.content):
            if isinstance(block, TextBlock) and (found := _LEFT_OUT.fullmatch(block.text)):
                yield found[1]
