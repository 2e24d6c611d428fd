"""Folds a thread's events and chunks into the steps of a conversation. Pure.

1. Every step but those of texts follows from events alone. So a conversation can be resumed from any place by folding
   the events since the last reply (`resumes_from`).
2. A call is shown when it is recorded: nothing else is certain to be judged, and to run.
3. The conversation closes when the agent waits for a person, and opens again with what the person does.
"""

from collections.abc import Iterator, Sequence

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.llm.blocks import ReasoningBlock, blocks_of, text_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log import events as ev
from holdfast.core.streams.chunks import Chunk
from holdfast.gateway.feeds.reply_text import Mark, ReplyText
from holdfast.gateway.feeds.steps import Asked, CallEnded, CallShown, Closed, Ending, MessageReceived, Opened, Step


class Conversation:
    """A thread as user interfaces show it."""

    def __init__(self) -> None:
        self.text, self.reasoning = ReplyText(), ReplyText("reasoning")
        self.open = False
        self._learning = False
        """Whether the LLM is asked what to remember: that is no part of the conversation."""
        self._expected = 0
        """Number of calls of the last reply that have no event yet."""
        self._calls: dict[int, CallShown] = {}
        """The calls without a result, by number."""
        self._asked: dict[int, Asked] = {}
        """The open requests, by the number of their call."""
        self._shown: set[int] = set()
        """The calls of `_calls`, and the open requests of `_asked`, that were shown since the last message."""
        self._shown_requests: set[int] = set()

    @property
    def marks(self) -> tuple[Mark, Mark]:
        """How much a client has of the text of the reply to come, and of its reasoning."""
        return self.text.mark, self.reasoning.mark

    @property
    def catches_up(self) -> bool:
        """Whether an attempt has not caught up with what a client has, who resumes with its first chunk then."""
        return self.text.catches_up or self.reasoning.catches_up

    def replay(self, events: Sequence[ev.AgentEvent]) -> None:
        """Take events that the client has, from one that `resumes_from` returned."""
        for event in events:
            for _ in self.event(event):
                pass

    def chunk(self, chunk: Chunk) -> Iterator[Step]:
        """Take a chunk of the reply to come."""
        if not self.open or self._learning:
            return
        match chunk.kind:
            case "superseded":
                self._begin_attempt()
            case "text" | "refusal":
                yield from self.text.add(chunk.text)
            case "reasoning":
                yield from self.reasoning.add(chunk.text)
            case "arguments":
                pass  # a call is shown when it is recorded

    def event(self, event: ev.AgentEvent) -> Iterator[Step]:
        """Take the next event."""
        match event:
            case ev.RunStarted():
                yield from self._begin_run(event)
            case ev.UserMessageReceived():
                yield from self._receive(event)
            case ev.LLMReplied():
                yield from self._reply(event)
            case ev.LearningRequested():
                self._learning = True
            case ev.ReplyRejected():
                self._expected = 0
            case ev.LLMCallLost() | ev.ContextExceeded() | ev.ContextCompacted() | ev.RunReset():
                self._begin_attempt()
            case ev.ToolCallRequested() if not (event.own or self._learning):
                yield from self._request(event)
            case ev.PreviewRequested():
                self._withdraw_request(event.request.id, number=event.request.number)
            case ev.ApprovalRequested() | ev.ReconcileRequested():
                yield from self._ask(event.request)
            case ev.DecisionReceived() if event.outcome in ("accepted", "waiting_for_quorum", "judged_anew"):
                if event.outcome != "waiting_for_quorum":
                    self._withdraw_request(event.request)
                yield from self._open()
                yield from self._close_if_asked()
            case ev.ApprovalExpired():
                self._withdraw_request(event.request)
                yield from self._open()
            case ev.ToolCallFinished():
                yield from self._finish_call(event)
            case ev.RunUnblocked() | ev.TaskRefined():
                yield from self._open()
                yield from self._close_if_asked()
            case ev.MessageAwaited():
                yield from self._close("answered", event.result, structured=event.structured)
            case ev.RunBlocked():
                yield from self._close("blocked", event.message, cause=event.cause)
            case ev.RunFinished():
                yield from self._close(event.outcome, event.result, structured=event.structured, cause=event.cause)
            case _:
                pass

    def _begin_run(self, event: ev.RunStarted) -> Iterator[Step]:
        yield from self._withdraw()  # the run before was terminated from outside
        self._begin_reply(event.position)
        self._learning, self._expected = False, 0
        for kept in (self._calls, self._asked, self._shown, self._shown_requests):
            kept.clear()
        yield from self._open()

    def _receive(self, event: ev.UserMessageReceived) -> Iterator[Step]:
        self._learning = False
        if not self.open:
            self._shown.clear()
            self._shown_requests.clear()
        yield from self._open()
        yield MessageReceived(event.position, event.by, text_of(event.content), event.id)
        yield from self._close_if_asked()

    def _reply(self, event: ev.LLMReplied) -> Iterator[Step]:
        if not self._learning:
            yield from self._open()
            self._expected = len(event.message.tool_calls) if event.message else 0
            yield from self.reasoning.record(_reasoning_of(event.message))
            yield from self.text.record(event.message.text if event.message else "")
        self._begin_reply(event.position)

    def _begin_reply(self, position: int) -> None:
        for text in (self.reasoning, self.text):
            text.begin_reply(position)

    def _begin_attempt(self) -> None:
        for text in (self.reasoning, self.text):
            text.begin_attempt()

    def _withdraw(self) -> Iterator[Step]:
        for text in (self.reasoning, self.text):
            yield from text.withdraw()

    def _request(self, event: ev.ToolCallRequested) -> Iterator[Step]:
        self._expected = max(0, self._expected - 1)
        self._calls[event.number] = CallShown(event.number, event.call.name, event.call.arguments)
        yield from self._open()
        yield from self._show(event.number)

    def _ask(self, request: ApprovalRequest) -> Iterator[Step]:
        if request.number not in self._calls:
            return
        self._asked[request.number] = Asked(request.number, request.view())
        self._shown_requests.discard(request.number)
        yield from self._open()
        yield from self._show_request(request.number)
        yield from self._close_if_asked()

    def _finish_call(self, event: ev.ToolCallFinished) -> Iterator[Step]:
        if event.number not in self._calls:
            return
        yield from self._open()
        yield from self._show(event.number)
        del self._calls[event.number]
        self._asked.pop(event.number, None)
        self._shown.discard(event.number)
        self._shown_requests.discard(event.number)
        yield CallEnded(event.position, event.number, event.status, event.text, event.cause)
        yield from self._close_if_asked()

    def _withdraw_request(self, request: str, *, number: int | None = None) -> None:
        for each in [n for n, asked in self._asked.items() if n == number or asked.request["request"] == request]:
            del self._asked[each]

    def _show(self, number: int) -> Iterator[Step]:
        if number not in self._shown:
            self._shown.add(number)
            call = self._calls[number]
            self._calls[number] = call._replace(again=True)
            yield call

    def _show_request(self, number: int) -> Iterator[Step]:
        if number not in self._shown_requests:
            yield from self._show(number)
            self._shown_requests.add(number)
            yield self._asked[number]

    def _open(self) -> Iterator[Step]:
        if not self.open:
            self.open = True
            yield Opened()

    def _close_if_asked(self) -> Iterator[Step]:
        """Close the conversation if every open call waits for a person."""
        if self._calls and not self._expected and self._calls.keys() == self._asked.keys():
            for number in self._asked:
                yield from self._show_request(number)
            yield from self._close("asked")

    def _close(self, ending: Ending, text: str = "", *, structured: bool = False, cause: str = "") -> Iterator[Step]:
        if not self.open:
            return
        yield from self._withdraw()
        self.open = False
        asked = tuple(self._asked.values()) if ending == "asked" else ()
        yield Closed(ending, text, structured, cause, asked)


def _reasoning_of(message: AssistantMessage | None) -> str:
    """Return the reasoning of a recorded reply, with a blank line between its blocks."""
    blocks = blocks_of(message.content) if message else ()
    return "\n\n".join(each.text for each in blocks if isinstance(each, ReasoningBlock) and each.text)


def resumes_from(events: Sequence[ev.AgentEvent]) -> int | None:
    """Return the index of the event from which a conversation can be folded, as if from the beginning, to get what
    follows the last of these events; None if it is before them.
    """
    reply, rejected = None, False
    for index in range(len(events) - 1, -1, -1):
        match events[index]:
            case ev.LLMReplied():
                if reply is not None and not rejected:
                    return reply
                reply, rejected = index if reply is None else reply, False
            case ev.LearningRequested():
                reply, rejected = None, False  # replies after it are about what to remember
            case ev.RunStarted():
                return index if reply is None else reply
            case ev.ReplyRejected() if reply is not None:
                rejected = True  # then the reply before it, too, may be about what to remember
            case _:
                pass
    return None
