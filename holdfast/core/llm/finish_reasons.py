"""Why a reply ended, in one table for the words of all providers; and whether a reply ends a run.

A reply is the end of something only if its LLM ended it: with an answer (`stop`) or with calls (`tool_calls`). Any
other word, known or not, says that something may be missing: text of such a reply is no answer, and its last call may
lack a part. A word that no table has therefore counts as an end in no way; it stays as the provider wrote it.

A reply with calls is judged call by call; the last call of a truncated reply does not run. Text is an answer only if
the LLM itself ended it, it shows something, and it is no call that was written as text. Otherwise the LLM reads why it
is asked again.

The fold asks `may_be_cut_off` of recorded words: a change of what it returns for a word needs a feature level.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from holdfast.core.base.text import is_blank, one_line, visible
from holdfast.core.llm.adapters import Decoded
from holdfast.core.llm.blocks import OtherBlock, ReasoningBlock, RefusalBlock, SaidBlock, TextBlock, blocks_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.written_calls import written_call

STOP, CALLS, LENGTH, FILTERED, BROKEN = "stop", "tool_calls", "length", "content_filter", "error"
MALFORMED = "malformed_call"
"""The provider could not read the call that the LLM wrote."""

UNREADABLE = "unreadable"
"""It is no text."""

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
"""What is part of a longer word, such as `max_new_tokens` or `IMAGE_SAFETY`. The first one counts."""


def finish_reason(given: Any) -> str:
    """Return why a reply ended: `stop`, `tool_calls`, `length`, `content_filter`, `malformed_call` or `error`; another
    reason in the provider's own word.

    Args:
        given: What the provider wrote; nothing at all counts as `stop`, which some servers leave out.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return STOP
    if not isinstance(given, str):
        return UNREADABLE
    # `content_filter: RECITATION`, `maxTokensReached`, `FinishReason.STOP`: what is not an end counts in any part.
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", given[:200].strip()).casefold()
    parts = [re.sub(r"[\W_]+", "_", part.strip()) for part in re.split(r"[:.,/|]", snake)]
    reasons = [_reason(part) for part in parts if part and part not in _LABELS]
    for reason in reversed(reasons):
        if reason not in ("", STOP, CALLS):
            return reason
    return reasons[0] if len(set(reasons)) == 1 and reasons[0] else given[:200]


def _reason(part: str) -> str:
    """Return the reason that a word says; empty if no table has it."""
    return next((reason for reason, pattern in _PARTS if pattern.search(part)), _WORDS.get(part, ""))


def is_context_full(word: str) -> bool:
    """Whether a provider's word says that the context window was full, and not that the reply reached its own limit."""
    return re.search(r"context_?(?:window|length)", re.sub(r"[\W_]+", "_", word[:200]).casefold()) is not None


def ended(given: str) -> bool:
    """Whether the LLM itself ended the reply, with an answer or with calls."""
    return finish_reason(given) in (STOP, CALLS)


def may_be_cut_off(given: str) -> bool:
    """Whether the last call of a reply may lack a part. A run asks this of the word that its history has."""
    return not ended(given)


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
