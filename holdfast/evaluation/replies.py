"""The LLM `recorded`: an endpoint on loopback that repeats the recorded replies of each run, in their order."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.base.canonical import digest
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.run.rules.compaction import SUMMARY_REQUEST
from holdfast.endpoints.script import Conversation, Reply, fail, raw
from holdfast.evaluation.compare.recording import RecordedReply, Recording

RECORDED = "recorded"
"""The name by which `--llm` selects it."""

FIELD = "holdfast_play"
"""The request field that names the thread (`llm_options`)."""

_ENDED = "the recording has no further reply"
_NO_SUMMARY = "(The recording has no summary.)"


@dataclass
class Replies:
    """The remaining recorded replies of one rerun."""

    steps: list[Reply]
    summaries: list[Reply]
    ended: bool = False
    """The rerun requested more replies than were recorded."""
    sent: dict[str, Reply] = field(default_factory=dict)
    """The replies sent, by the digest of the request: a repeated request gets the same reply."""


class RecordedReplies:
    """The recorded replies of any number of reruns, as a script."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: dict[str, Replies] = {}

    def add(self, thread: str, recording: Recording) -> Replies:
        """Serve a rerun the replies of a recording, until `drop`."""
        summaries = [_text_reply(text) for text in recording.summaries]
        replies = Replies([_reply(each) for each in recording.replies], summaries)
        with self._lock:
            self._replies[thread] = replies
        return replies

    def drop(self, thread: str) -> None:
        """Drop the replies of a rerun that has ended."""
        with self._lock:
            self._replies.pop(thread, None)

    def __call__(self, conversation: Conversation) -> Reply:
        """Return the next recorded reply of the requesting thread."""
        name = digest(["play/1", conversation.request])
        with self._lock:
            replies = self._replies.get(str(conversation.request.get(FIELD)))
            if replies is None:
                return fail(400, "no rerun has this thread")
            if name not in replies.sent:
                replies.sent[name] = _next(replies, conversation)
            return replies.sent[name]


def _next(replies: Replies, conversation: Conversation) -> Reply:
    if conversation.last_user_message == text_of(SUMMARY_REQUEST.content):
        return replies.summaries.pop(0) if replies.summaries else _text_reply(_NO_SUMMARY)
    if replies.steps:
        return replies.steps.pop(0)
    replies.ended = True
    return fail(400, _ENDED)


def _text_reply(text: str) -> Reply:
    message = AssistantMessage(content=text)
    return _reply(RecordedReply(message=message, usage=Usage(), finish_reason="stop", llm=RECORDED))


def _reply(recorded: RecordedReply) -> Reply:
    """Encode a reply in the format of the endpoint's API."""
    usage = recorded.usage
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if recorded.message is not None:
        message = json.loads(ChatCompletions().encode(recorded.message))
    return raw(
        {
            "object": "chat.completion",
            "model": recorded.llm,
            "choices": [{"index": 0, "message": message, "finish_reason": recorded.finish_reason}],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }
    )
