"""The pieces of a thread that `Thread.stream` yields."""

import json
from typing import Any, Literal

from holdfast.client.threads import JSON
from holdfast.core.base.models import Frozen
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_event
from holdfast.core.streams.chunks import Chunk, ChunkKind
from holdfast.core.streams.drafts import Draft

PieceKind = ChunkKind | Literal["event"]


class Piece(Frozen):
    """The next piece of a thread: an event, or a part of the reply that the LLM is writing."""

    id: str
    """Its place in the thread, for `Thread.stream(after=…)`."""
    kind: PieceKind
    """`text` of the answer, `reasoning`, `refusal`, or `arguments` of a tool call; `superseded`: drop the pieces of the
    reply so far, another attempt begins; `event`: a recorded event, which replaces all pieces of its reply."""
    text: str = ""
    """The next text of that kind."""
    call: int | None = None
    """For `arguments`: the number of the call in the reply, from 0."""
    tool: str = ""
    """For `arguments`: the tool's name."""
    result: Any = None
    """For `arguments` of a structured result (`Agent(result=…)`): the result as far as it is written. It is JSON that
    nobody has validated; the recorded result is."""
    event: AgentEvent | None = None
    """For `event`: the event."""


def piece_of(each: JSON | Chunk, draft: Draft) -> Piece:
    """Return the piece of an event or a chunk.

    Args:
        each: The event or the chunk.
        draft: The reply so far, to which it is added.
    """
    if not isinstance(each, Chunk):
        draft.event(each)
        return Piece(id=str(each["position"]), kind="event", event=decode_event(json.dumps(each)))
    draft.add(each)
    return Piece(
        id=each.id,
        kind=each.kind,
        text=each.text,
        call=each.call,
        tool=each.tool,
        result=draft.result if each.kind == "arguments" else None,
    )
