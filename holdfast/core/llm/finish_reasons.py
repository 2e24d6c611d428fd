"""Why a reply ended: one table for the words of all providers.

A reply is the end of something only if its LLM ended it: with an answer (`stop`) or with calls (`tool_calls`). Any
other word, known or not, says that something may be missing: text of such a reply is no answer, and its last call may
lack a part. A word that no table has therefore counts as an end in no way; it stays as the provider wrote it.

The fold asks `may_be_cut_off` of recorded words: a change of what it returns for a word needs a feature level.
"""

import re
from collections.abc import Mapping
from typing import Any

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
