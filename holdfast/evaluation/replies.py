"""The LLM `recorded`: an endpoint on loopback that gives each run its recorded replies again, in their order."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.base.canonical import digest
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.rules.compaction import SUMMARY_REQUEST
from holdfast.endpoints.script import Conversation, Reply, fail, raw
from holdfast.evaluation.compare.recording import RecordedReply, Recording

RECORDED = "recorded"
"""The name by which `--llm` selects it."""

FIELD = "holdfast_play"
"""The field of a request with the thread that makes it (`llm_options`)."""

_ENDED = "the recording has no further reply"
_NO_SUMMARY = "(The recording has no summary.)"


@dataclass
class Replies:
    """The recorded replies of one play, as far as they are left."""

    steps: list[Reply]
    summaries: list[Reply]
    ended: bool = False
    """The play asked for more than was recorded."""
    given: dict[str, Reply] = field(default_factory=dict)
    """By the digest of the request: one that is repeated gets the reply that it had."""


class RecordedReplies:
    """The recorded replies of any number of plays, as a script."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plays: dict[str, Replies] = {}

    def add(self, thread: str, recording: Recording) -> Replies:
        """Give a play the replies of a recording, until `drop`."""
        summaries = [_reply(RecordedReply.model_validate(_said(text))) for text in recording.summaries]
        replies = Replies([_reply(each) for each in recording.replies], summaries)
        with self._lock:
            self._plays[thread] = replies
        return replies

    def drop(self, thread: str) -> None:
        """Forget the replies of a play that has ended."""
        with self._lock:
            self._plays.pop(thread, None)

    def __call__(self, conversation: Conversation) -> Reply:
        """Return the next recorded reply of the thread that asks."""
        name = digest(["play/1", conversation.request])
        with self._lock:
            play = self._plays.get(str(conversation.request.get(FIELD)))
            if play is None:
                return fail(400, "no play has this thread")
            if name not in play.given:
                play.given[name] = _next(play, conversation)
            return play.given[name]


def _next(play: Replies, conversation: Conversation) -> Reply:
    if conversation.last_user_message == text_of(SUMMARY_REQUEST.content):
        return play.summaries.pop(0) if play.summaries else _reply(RecordedReply.model_validate(_said(_NO_SUMMARY)))
    if play.steps:
        return play.steps.pop(0)
    play.ended = True
    return fail(400, _ENDED)


def _said(text: str) -> dict[str, Any]:
    return {"message": AssistantMessage(content=text), "usage": {}, "finish_reason": "stop", "llm": RECORDED}


def _reply(recorded: RecordedReply) -> Reply:
    """A reply as the endpoint's API spells it."""
    usage = recorded.usage
    said: dict[str, Any] = {"role": "assistant", "content": None}
    if recorded.message is not None:
        said = json.loads(ChatCompletions().encode(recorded.message))
    return raw(
        {
            "object": "chat.completion",
            "model": recorded.llm,
            "choices": [{"index": 0, "message": said, "finish_reason": recorded.finish_reason}],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }
    )
