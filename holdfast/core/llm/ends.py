"""Whether a reply ends something: what visibly is not the end goes back to the LLM, which reads why.

A reply with calls is judged call by call; the last one of a reply that was cut off does not run. Text is an answer only
if the LLM itself ended it, it shows something, and it is no call that was written as text.
"""

import re
from collections.abc import Collection

from holdfast.core.base.text import is_blank, one_line, visible
from holdfast.core.llm.adapters import Decoded
from holdfast.core.llm.blocks import OtherBlock, ReasoningBlock, RefusalBlock, SaidBlock, TextBlock, blocks_of
from holdfast.core.llm.finish_reasons import STOP
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.written_calls import written_call

CUT_OFF = (
    "the reply was cut off, and this call was its last one: its arguments may be incomplete. Make the call again in a "
    "shorter reply"
)
"""Why the last call of a reply does not run that the LLM itself did not end."""

EMPTY = "it is empty."

WRITTEN_CALL = "it has a tool call that was written as text, and nothing was called"
"""How the reason begins where a call was written as text; `call_llm` finds by it whether the LLM was asked."""


_MEDIA = re.compile(r"image|audio|video|file|document")


def why_no_end(message: AssistantMessage | None, given: Decoded, *, tools: Collection[str], asked: bool) -> str:
    """Return why a reply cannot be used, in a sentence for the LLM; empty if it can.

    Args:
        message: The reply; None if it shows nothing.
        given: What the adapter read.
        tools: The names of the agent's tools.
        asked: The LLM was asked whether the call in the text of its last reply is meant as one.
    """
    if message is not None and message.tool_calls:
        return ""  # each call says what is wrong with it
    word = f" ({one_line(visible(given.finish_word), 60)})" if given.finish_word else ""
    match given.finish_reason:
        case "content_filter" if not _is_refusal(message):
            held = "cut it off" if message else "withheld it"
            return f"the provider's content filter {held}{word}; say it in another way."
        case "content_filter":
            return ""
        case "length":
            return f"it was cut off by the length limit{word}; be shorter."
        case "malformed_call":
            return f"the provider could not read its tool call{word}; make the call again, with plain arguments."
        case "tool_calls":
            return f"it announces tool calls{word} and has none; make them, or answer without them."
        case reason if reason != STOP:
            return f"it ended early, for a reason that is no end of an answer ({one_line(visible(reason), 60)})."
    if message is None or not any(map(_shows_something, blocks_of(message.content))):
        return EMPTY
    return _why_a_call(message.text, tools, asked=asked)


def _shows_something(block: SaidBlock) -> bool:
    """Whether a block is part of an answer, and not a thought, or a trace of what the provider's own tools did."""
    match block:
        case TextBlock(text=text) | RefusalBlock(text=text):
            return not is_blank(text)
        case OtherBlock(text=text):
            return _MEDIA.search(text) is not None
        case _:
            return not isinstance(block, ReasoningBlock)


def _is_refusal(message: AssistantMessage | None) -> bool:
    """Whether all that a content filter left of a reply is the LLM's own refusal, which is its answer."""
    shown = [block for block in blocks_of(message.content) if _shows_something(block)] if message else []
    return bool(shown) and all(isinstance(block, RefusalBlock) for block in shown)


def _why_a_call(text: str, tools: Collection[str], *, asked: bool) -> str:
    match written_call(text, tools):
        case "call":
            return f"{WRITTEN_CALL}: call tools through the API's own tool calls, or answer in words."
        case "mention" if not asked:
            return (
                f"{WRITTEN_CALL}: if you meant to call the tool, call it through the API's own tool calls. If the text "
                "is your answer, send it once more."
            )
    return ""
