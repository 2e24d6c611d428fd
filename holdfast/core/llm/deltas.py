"""Deltas: the pieces of a reply, as an adapter reads them from a provider's stream. Pure.

1. An adapter that can stream is also a `StreamingAdapter`. The reply is decoded from what its `ReplyStream` has put
   together, and the deltas are read from the same bytes: joined, they are the text of the reply.
2. A stream that ends before its reply is no reply, however much of it has arrived.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from holdfast.core.llm.blocks import ReasoningBlock, RefusalBlock, TextBlock, ToolCall, blocks_of
from holdfast.core.llm.messages import AssistantMessage

DeltaKind = Literal["text", "reasoning", "refusal", "arguments"]
"""`text` of the answer, `reasoning`, `refusal`: the reason for which the LLM declines, `arguments` of a tool call."""


class Delta(NamedTuple):
    """The next piece of a reply."""

    kind: DeltaKind
    text: str
    call: int | None = None
    """For `arguments`: the number of the call in the reply, from 0."""
    tool: str = ""
    """For `arguments`: the tool's name, as far as it is known."""


class ReplyStream(Protocol):
    """Reads one streamed reply."""

    def feed(self, data: bytes) -> Iterable[Delta]:
        """Return the deltas in the next bytes of the body. Never raises because of their content."""

    def end(self) -> Mapping[str, Any]:
        """Return the body that the API would have sent without streaming. If the reply has not arrived to its end, or a
        part of it cannot be read, the body's finish reason is an error. It is called once, after the last byte.
        """


def deltas_of(message: AssistantMessage | None) -> Iterator[Delta]:
    """Yield the deltas of a whole reply; none for None."""
    calls = 0
    for block in blocks_of(message.content) if message else ():
        match block:
            case TextBlock(text=text):
                yield Delta("text", text)
            case RefusalBlock(text=text):
                yield Delta("refusal", text)
            case ReasoningBlock(text=text):
                yield Delta("reasoning", text)
            case ToolCall(name=name, arguments=arguments):
                yield Delta("arguments", arguments, calls, name)
                calls += 1
            case _:
                continue


def asking_to_stream(body: bytes, conversation: bytes, *, more: bytes = b"") -> bytes:
    """Return a request as one for a stream; unchanged if its options have `stream` themselves.

    Args:
        body: The request.
        conversation: The bytes with which its messages begin.
        more: Further fields.
    """
    # Options come first: no text has an unescaped quote, but the schema of a tool may have a parameter `stream`.
    options = body.partition(conversation)[0].partition(b',"tools":[')[0]
    return body if b'"stream":' in options else body[:-1] + b',"stream":true' + more + b"}"


@runtime_checkable
class StreamingAdapter(Protocol):
    """An adapter of an API that can stream."""

    def asking_to_stream(self, body: bytes) -> bytes:
        """Return a request as one whose reply is streamed, with its usage; unchanged if the agent's options decide."""

    def reply_stream(self) -> ReplyStream:
        """Return a reader of one streamed reply."""


class JoinedText:
    """Joins text whose pieces may end within a surrogate pair, as JSON strings can be cut."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._half = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the next text, without the first half of a pair at its end."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = _paired(text[:-1] if self._half else text)
        self._parts.append(text)
        return text

    def joined(self) -> str:
        """Return the whole text."""
        return "".join(self._parts) + _paired(self._half)


def _paired(text: str) -> str:
    """Join surrogate pairs; single halves become '?', as everywhere in a reply."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass").encode("utf-8", "replace").decode()
