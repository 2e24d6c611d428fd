"""The transcript: the messages an LLM is sent, as a fold over events, kept as the bytes that every request carries.

1. A message is encoded once, when it enters, and frozen: request n+1 begins with the bytes of request n.
2. Tool results enter in call order, whatever order they came in.
3. The workflow holds the transcript; activities are handed a reference and ask for what they have not seen.
"""

from itertools import islice

from holdfast.agent import AgentSpec
from holdfast.events import (
    AgentEvent,
    LLMReplied,
    ReplyRejected,
    ToolCallFinished,
    ToolCallRequested,
    UserMessageReceived,
)
from holdfast.messages import AssistantMessage, ToolMessage, UserMessage, encode, encode_wire
from holdfast.model import GENESIS, Frozen, chain, page


class TranscriptRef(Frozen):
    """Stands for the first `length` messages of the calling workflow's transcript, in an activity's input."""

    length: int
    digest: str
    """Digest of the chain of those messages' bytes."""


class Transcript:
    """The messages of one thread, encoded, in order, append-only."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.head = GENESIS
        self._open: dict[int, str] = {}
        """Numbers and provider's ids of calls whose results have not entered, in call order."""
        self._early: dict[int, str] = {}
        """Results that came before those of earlier calls."""

    @property
    def ref(self) -> TranscriptRef:
        """A reference to all messages so far."""
        return TranscriptRef(length=len(self.messages), digest=self.head)

    def add(self, event: AgentEvent) -> None:
        """Append the messages that `event` completes, if any."""
        match event:
            case UserMessageReceived():
                self._append(UserMessage(content=event.content))
            case LLMReplied(message=AssistantMessage() as message):
                self._append(message)
            case ReplyRejected() if event.notice:
                self._append(UserMessage(content=event.notice))
            case ToolCallRequested():
                self._open[event.number] = event.call.id
            case ToolCallFinished():
                self._early[event.number] = event.content
                self._flush()
            case _:
                pass

    def page(self, start: int) -> bytes:
        """Messages from `start` on, one JSON text a line, a page of them; empty when there are none."""
        return page(islice(self.messages, start, None))

    def _flush(self) -> None:
        for number in list(self._open):
            if number not in self._early:
                break
            self._append(ToolMessage(tool_call_id=self._open.pop(number), content=self._early.pop(number)))

    def _append(self, message: UserMessage | AssistantMessage | ToolMessage) -> None:
        encoded = encode(message)
        self.messages.append(encoded)
        self.head = chain(self.head, encoded)


def request_prefix(spec: AgentSpec) -> bytes:
    """Everything of a request before its first message but one: the same bytes for every step of a run."""
    head: dict[str, object] = {"model": spec.llm, **spec.llm_options}
    if spec.tools:
        head["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in spec.tools
        ]
    system = encode_wire({"role": "system", "content": spec.instructions})
    return encode_wire(head)[:-1] + b',"messages":[' + system


def request_body(prefix: bytes, messages: list[bytes]) -> bytes:
    """The whole request: prefix and messages, joined without decoding any of them."""
    return b",".join([prefix, *messages]) + b"]}"


def clip(text: str, limit: int) -> str:
    """`text` if it is at most `limit` characters long; else its head and tail, and how much lies between."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out:,} of {len(text):,} characters left out …]\n{text[-tail:]}"
