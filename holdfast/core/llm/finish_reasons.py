"""Finish reasons of all providers in one table; and the decision whether a reply ends a run.

A reply is complete only if the LLM itself ended it: with an answer (`stop`) or with calls (`tool_calls`). With any
other word, known or not, something may be missing: the text of such a reply is not an answer, and its last call may be
incomplete. So an unknown word never counts as an end; it stays as the provider wrote it.

A reply with calls is judged call by call; the last call of a truncated reply does not run. Text is an answer only if
the LLM itself ended it, it is not blank, and it is not a call written as text. Otherwise the LLM gets the reason and is
asked again.

The fold calls `may_be_cut_off` with recorded words, so changing its result for a word requires a feature level.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from holdfast.core.base.text import is_blank, one_line, visible
from holdfast.core.llm.adapters import Decoded
from holdfast.core.llm.blocks import OtherBlock, OutputBlock, ReasoningBlock, RefusalBlock, TextBlock, blocks_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.written_calls import written_call

STOP, CALLS, LENGTH, FILTERED, BROKEN = "stop", "tool_calls", "length", "content_filter", "error"
MALFORMED = "malformed_call"
"""The provider could not read the call that the LLM wrote."""

UNREADABLE = "unreadable"
"""The provider's word is not text."""

_LABELS = ("finishreason", "finish_reason", "stopreason", "stop_reason", "reason")
_WORDS: Mapping[str, str] = {
    word: reason
    for reason, words in {
        STOP: """stop stop_sequence stop_sequences stop_token stop_string stop_string_found stop_criteria_met end
            end_turn end_of_turn endoftext end_of_text eos eos_token eos_found eot eot_id im_end finish finished
            complete completed done normal success succeeded word""",
        CALLS: "tool_calls tool_call tool_use tools function_call function_calls function",
        LENGTH: "length limit cut_off cutoff incomplete not_finished error_limit",
        FILTERED: "spii language error_toxic toxic flagged blocked moderation model_armor unsafe",
        BROKEN: """error failed failure abort aborted cancelled canceled user_cancel interrupted preempted timeout
            timed_out time_limit network_error server_error internal_error error_other model_unloaded
            insufficient_system_resource in_progress queued""",
    }.items()
    for word in words.split()
}
_PARTS = (
    (MALFORMED, re.compile(r"malformed|unexpected_tool|too_many_tool|invalid_(?:tool|function)|thought_signature")),
    (LENGTH, re.compile(r"max_?(?:\w+_)?tok|tokens?_limit|token_budget|length|truncat|context_window|limit_reached")),
    (
        FILTERED,
        re.compile(
            r"filter|safety|recitation|blocklist|prohibited|sensitive|guardrail|refus|policy|copyright|jailbreak"
        ),
    ),
)
"""Patterns for parts of longer words, such as `max_new_tokens` or `IMAGE_SAFETY`. The first match counts."""


def finish_reason(word: Any) -> str:
    """Return the reason that a reply ended: `stop`, `tool_calls`, `length`, `content_filter`, `malformed_call` or
    `error`; any other reason in the provider's own word.

    Args:
        word: The provider's word; if it is missing or blank, it counts as `stop`, which some servers omit.
    """
    if word is None or (isinstance(word, str) and not word.strip()):
        return STOP
    if not isinstance(word, str):
        return UNREADABLE
    # `content_filter: RECITATION`, `maxTokensReached`, `FinishReason.STOP`: a part that is not an end takes precedence.
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word[:200].strip()).casefold()
    parts = [re.sub(r"[\W_]+", "_", part.strip()) for part in re.split(r"[:.,/|]", snake)]
    reasons = [_reason(part) for part in parts if part and part not in _LABELS]
    for reason in reversed(reasons):
        if reason not in ("", STOP, CALLS):
            return reason
    return reasons[0] if len(set(reasons)) == 1 and reasons[0] else word[:200]


def _reason(part: str) -> str:
    """Return the reason for a word; empty if no table has it."""
    return next((reason for reason, pattern in _PARTS if pattern.search(part)), _WORDS.get(part, ""))


def is_context_full(word: str) -> bool:
    """Whether a provider's word means that the context window was full, as opposed to a limit on the reply itself."""
    return re.search(r"context_?(?:window|length)", re.sub(r"[\W_]+", "_", word[:200]).casefold()) is not None


def may_be_cut_off(word: str) -> bool:
    """Whether the last call of a reply may be incomplete. A run calls this with the word in its history."""
    return finish_reason(word) not in (STOP, CALLS)


CUT_OFF = (
    "the reply was cut off, and this call was its last one: its arguments may be incomplete. Make the call again in a "
    "shorter reply"
)
"""The reason not to run the last call of a reply that the LLM itself did not end."""

EMPTY = "it is empty."

WRITTEN_CALL = "it has a tool call that was written as text, and nothing was called"
"""The beginning of the reason for a call written as text; `call_llm` recognises by it that the LLM was asked."""


_MEDIA = re.compile(r"image|audio|video|file|document")


def why_unusable(message: AssistantMessage | None, decoded: Decoded, *, tools: Collection[str], asked: bool) -> str:
    """Return the reason that a reply cannot be used, in a sentence for the LLM; empty if it can.

    Args:
        message: The reply; None if it is blank.
        decoded: The adapter's result.
        tools: The names of the agent's tools.
        asked: Whether the LLM was already asked if the call in the text of its last reply was meant as one.
    """
    if message is not None and message.tool_calls:
        return ""  # problems are reported call by call
    word = f" ({one_line(visible(decoded.finish_word), 60)})" if decoded.finish_word else ""
    match decoded.finish_reason:
        case "content_filter" if not _is_refusal(message):
            effect = "cut it off" if message else "withheld it"
            return f"the provider's content filter {effect}{word}; say it in another way."
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


def _shows_something(block: OutputBlock) -> bool:
    """Whether a block is part of an answer, as opposed to reasoning or a trace of the provider's own tools."""
    match block:
        case TextBlock(text=text) | RefusalBlock(text=text):
            return not is_blank(text)
        case OtherBlock(text=text):
            return _MEDIA.search(text) is not None
        case _:
            return not isinstance(block, ReasoningBlock)


def _is_refusal(message: AssistantMessage | None) -> bool:
    """Whether a content filter left nothing of a reply but the LLM's own refusal, which is an answer."""
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
