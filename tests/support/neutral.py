"""Messages and threads in the neutral form, for the tests of the adapters."""

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.blocks import (
    AudioBlock,
    FileBlock,
    ImageBlock,
    OtherBlock,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, UserMessage
from holdfast.core.llm.responses import Responses
from tests.support.values import IDENT, JSON, NAME, TEXT, Wire


@dataclass(frozen=True)
class Api:
    """An adapter, and the messages that its API sends and accepts. SDK types are imported when a test needs them."""

    adapter: Adapter
    name: str

    @property
    def replies(self) -> st.SearchStrategy[Wire]:
        """Return the API's replies."""
        replies: Callable[[], st.SearchStrategy[Wire]] = getattr(_wire_replies(), f"{self.name}_replies")
        return replies()

    def wants(self, reply: Wire) -> list[Wire]:
        """Return the message that the API expects back."""
        wants: Callable[[Wire], list[Wire]] = getattr(_wire_replies(), f"{self.name}_wants")
        return wants(reply)


def _wire_replies() -> ModuleType:
    return import_module("tests.support.wire_replies")


APIS = (
    Api(ChatCompletions(), "chat"),
    Api(Responses(), "responses"),
    Api(AnthropicMessages(), "anthropic"),
)
BY_NAME = {api.name: api for api in APIS}

_PART = st.none() | st.builds(ProviderPart, issuer=st.just("elsewhere"), data=st.dictionaries(TEXT, JSON, max_size=2))
_DATA = st.binary(max_size=6, min_size=1).map(lambda data: base64.b64encode(data).decode())
_KINDS = ["image/png", "image/tiff", "application/pdf", "text/plain", "audio/wav"]


def _media(kind: type[ImageBlock] | type[FileBlock] | type[AudioBlock], **more: Any) -> st.SearchStrategy[Any]:
    by_url = st.builds(kind, provider=_PART, url=st.sampled_from(["https://a.example/b", "https://c.example"]), **more)
    return by_url | st.builds(kind, provider=_PART, data=_DATA, media_type=st.sampled_from(_KINDS), **more)


_ANY_TEXT = st.sampled_from(["", " ", "\n"]) | TEXT
_MEDIA = (
    _media(ImageBlock, detail=st.sampled_from(["", "low"]))
    | _media(FileBlock, name=st.sampled_from(["", "a.pdf"]))
    | _media(AudioBlock, transcript=st.sampled_from(["", "hello"]))
)
_TEXT_BLOCK = st.builds(TextBlock, text=_ANY_TEXT, provider=_PART)
_HEARD = _ANY_TEXT | st.lists(_TEXT_BLOCK | _MEDIA, max_size=4).map(tuple)
_ARGUMENTS = st.sampled_from(["{}", '{"z":1,"a":[2]}', '{"cut', "[1]", "", '{"n":NaN}', '{"n":1e999}', "[" * 2000])
_ID = st.sampled_from(["functions.look:0", "a b", "x" * 80]) | IDENT
_CALL = st.builds(ToolCall, id=_ID, name=NAME | TEXT | st.just(""), arguments=_ARGUMENTS, provider=_PART)
_SAID = st.one_of(
    _TEXT_BLOCK,
    _CALL,
    _MEDIA,
    st.builds(ReasoningBlock, text=_ANY_TEXT, provider=_PART),
    st.builds(RefusalBlock, text=TEXT, provider=_PART),
    st.builds(OtherBlock, text=TEXT, provider=_PART),
)

USERS = st.builds(UserMessage, content=_HEARD)
RESULTS = st.builds(ToolMessage, tool_call_id=_ID, content=_HEARD, failed=st.booleans())
ASSISTANTS = st.builds(AssistantMessage, content=TEXT | st.lists(_SAID, max_size=5).map(tuple), provider=_PART)
MESSAGES = USERS | RESULTS | ASSISTANTS
"""Messages with every kind of block, without anything that our adapters' APIs issued."""


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return examples, the same ones each time."""
    found: list[Any] = []

    @settings(max_examples=count, database=None)
    @given(strategy)
    def draw(example: Any) -> None:
        found.append(example)

    draw()
    return found


@cache
def _pool() -> Mapping[str, Sequence[AnyMessage]]:
    replies = [
        decoded.message
        for api in APIS
        for reply in drawn(api.replies, 80)
        if (decoded := api.adapter.decode(reply, ids="step")).message
    ]
    return {"user": drawn(USERS, 80), "tool": drawn(RESULTS, 80), "assistant": replies + drawn(ASSISTANTS, 80)}


@dataclass(frozen=True)
class Thread:
    """Messages, and the positions at which the LLM was called."""

    messages: Sequence[AnyMessage]
    calls: Sequence[int]


def thread(seed: int) -> Thread:
    """Return a thread whose replies come from all APIs: calls in parallel with their results in order, media, notes
    that arrive after the results, and replies that were rejected and left out.
    """
    rng, pool = random.Random(seed), _pool()
    messages: list[AnyMessage] = rng.sample(pool["user"], rng.randint(1, 2))
    calls = [len(messages)]
    for number in range(rng.randint(1, 4)):
        if rng.random() < 0.2:  # rejected: the LLM reads why, and is called again
            messages.append(rng.choice(pool["user"]))
        else:
            reply = _with_unique_ids(rng.choice(pool["assistant"]), number)
            messages.append(reply)
            messages += (_result(rng.choice(pool["tool"]), call.id) for call in reply.tool_calls)
            messages += rng.sample(pool["user"], rng.randint(0 if reply.tool_calls else 1, 2))
        calls.append(len(messages))
    return Thread(messages, calls)


def _with_unique_ids(message: AnyMessage, number: int) -> AssistantMessage:
    """Return a reply whose calls have ids that no other reply of the thread has."""
    assert isinstance(message, AssistantMessage)
    if not message.tool_calls:
        return message
    assert not isinstance(message.content, str)
    blocks = [
        block.model_copy(update={"id": f"{block.id}-{number}-{index}"}) if isinstance(block, ToolCall) else block
        for index, block in enumerate(message.content)
    ]
    return AssistantMessage(content=tuple(blocks), provider=message.provider)


def _result(message: AnyMessage, call_id: str) -> ToolMessage:
    assert isinstance(message, ToolMessage)
    return ToolMessage(tool_call_id=call_id, content=message.content, failed=message.failed)
