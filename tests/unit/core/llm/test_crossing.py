"""Threads that cross providers: what one LLM issued goes back to it alone, and requests keep their prefix on each."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, UserMessage, decode, encode
from holdfast.core.llm.responses import Responses
from tests.support.examples import examples
from tests.support.neutral import APIS, drawn

KINDS: tuple[Callable[[str], Adapter], ...] = (ChatCompletions, Responses, AnthropicMessages)
LLMS: dict[str, Adapter] = {
    f"{api.name}/{llm}": kind(f"{api.name}/{llm}") for api, kind in zip(APIS, KINDS, strict=True) for llm in "ab"
}
"""Two LLMs at each API."""


def replies(count: int) -> list[tuple[str, AssistantMessage]]:
    """Return replies of each LLM, as the log returns them."""
    found = []
    for api in APIS:
        for number, reply in enumerate(drawn(api.replies, count)):
            name = f"{api.name}/{'ab'[number % 2]}"
            message = LLMS[name].decode(reply, ids=f"step{number}").message
            if message is not None:
                found.append((name, decode(encode(message))))
    return found  # type: ignore[return-value]


def without_parts(message: AssistantMessage) -> AssistantMessage:
    """Return a message without anything that its provider issued."""
    if isinstance(message.content, str):
        return message.model_copy(update={"provider": None})
    blocks = tuple(block.model_copy(update={"provider": None}) for block in message.content)
    return message.model_copy(update={"content": blocks, "provider": None})


@pytest.mark.parametrize("name", LLMS)
def test_no_llm_gets_what_another_one_issued(name: str) -> None:
    """To another LLM, of the same API or another, a reply is sent as if its provider had issued nothing with it."""
    for issuer, message in replies(examples(20, 300)):
        if issuer != name:
            assert LLMS[name].encode(message) == LLMS[name].encode(without_parts(message))


def test_a_thread_that_changes_its_llm_keeps_its_prefix_on_each() -> None:
    """Over a thread whose replies come from six LLMs in turn, each request to one LLM begins the next one to it."""
    pool = replies(examples(20, 300))
    by_name = {name: [message for each, message in pool if each == name] for name in LLMS}
    for seed in range(examples(4, 40)):
        thread: list[AnyMessage] = [UserMessage(content="go")]
        lengths = []
        for step in range(12):
            name = list(LLMS)[(seed + step) % len(LLMS)]
            message = by_name[name][(seed * 7 + step) % len(by_name[name])]
            lengths.append(len(thread))
            thread.append(renumbered(message, step))
            calls = [block for block in thread[-1].content if isinstance(block, ToolCall)]
            thread += [ToolMessage(tool_call_id=call.id, content="done") for call in calls]
            thread += [] if calls else [UserMessage(content="next")]
        for name, adapter in LLMS.items():
            encoded = [adapter.encode(message) for message in thread]
            prefix = adapter.prefix("m", {}, [], "Work.")
            bodies = [adapter.body(prefix, encoded[:length]) for length in lengths]
            tail = b"]}]}" if name.startswith("anthropic") else b"]}"
            for before, after in pairwise(bodies):
                assert after.startswith(before.removesuffix(tail)), (seed, name)


def renumbered(message: AssistantMessage, step: int) -> AssistantMessage:
    """Return a reply whose calls have ids that no other reply of the thread has."""
    if isinstance(message.content, str):
        return message
    blocks = tuple(
        block.model_copy(update={"id": f"{block.id[:40]}-{step}-{at}"}) if isinstance(block, ToolCall) else block
        for at, block in enumerate(message.content)
    )
    return message.model_copy(update={"content": blocks})
