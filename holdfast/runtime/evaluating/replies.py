"""The LLM `recorded`: an endpoint on loopback that gives each run its recorded replies again, in their order."""

import json
import threading
from typing import Any

from holdfast.base.digests import digest
from holdfast.evaluation.recording import RecordedReply, Recording
from holdfast.llm.blocks import text_of
from holdfast.llm.chat_completions import ChatCompletions
from holdfast.llm.messages import AssistantMessage
from holdfast.run.compaction import SUMMARY_REQUEST
from holdfast.runtime.llm.script import Conversation, Reply, fail, raw

RECORDED = "recorded"
"""The name by which `--llm` selects it."""

FIELD = "holdfast_play"
"""The field of a request with the thread that makes it (`llm_options`)."""

_ENDED = "the recording has no further reply"
_NO_SUMMARY = "(The recording has no summary.)"


class RecordedReplies:
    """The recorded replies of any number of plays, as a script.

    A request that is repeated gets the reply that it had: its digest is kept, so the state of the script is that of the
    conversations alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[str, tuple[list[Reply], list[Reply]]] = {}
        self._given: dict[str, Reply] = {}
        self.ended: set[str] = set()
        """The threads that asked for more than was recorded."""

    def add(self, thread: str, recording: Recording) -> None:
        """Give a play the replies of a recording."""
        summaries = [_reply(RecordedReply.model_validate(_said(text))) for text in recording.summaries]
        with self._lock:
            self._left[thread] = [_reply(each) for each in recording.replies], summaries

    def __call__(self, conversation: Conversation) -> Reply:
        """Return the next recorded reply of the thread that asks."""
        thread = str(conversation.request.get(FIELD))
        name = digest(["play/1", conversation.request])
        with self._lock:
            if name not in self._given:
                self._given[name] = self._next(thread, conversation)
            return self._given[name]

    def _next(self, thread: str, conversation: Conversation) -> Reply:
        replies, summaries = self._left.get(thread, ([], []))
        if conversation.last_user_message == text_of(SUMMARY_REQUEST.content):
            return summaries.pop(0) if summaries else _reply(RecordedReply.model_validate(_said(_NO_SUMMARY)))
        if replies:
            return replies.pop(0)
        self.ended.add(thread)
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
