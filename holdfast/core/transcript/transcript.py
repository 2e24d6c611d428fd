"""The transcript: the messages to the LLM, as a fold over events, kept as the bytes that every request carries.

1. A message is encoded once, when it enters, and frozen: request n+1 begins with the bytes of request n, unless
   context was compacted between them.
2. Tool results enter in call order, regardless of the order of their arrival. A person's message enters when the run
   takes it from the inbox.
3. Context compaction replaces the messages with one summary message and the last few; the events stay in the log.
   People's messages that hold more than text follow the summary, byte for byte as before.
4. The workflow holds the messages since its Temporal run began. Activities receive a reference, query the workflow for
   the messages they lack, and rebuild older ones from the permanent record.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.base.canonical import GENESIS, chain, digest
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import Content, more_than_text, with_heading
from holdfast.core.llm.conversation import conversation_text
from holdfast.core.llm.messages import AnyMessage, ToolMessage, UserMessage, encode
from holdfast.core.log import events
from holdfast.core.log.event_log import Lines, Pages, page
from holdfast.core.log.events import AgentEvent, ToolStatus

TASK = 1
"""Position of the event that holds a thread's task."""

ORIGINALS_BYTES = 1_000_000
"""Maximum total size of people's messages with images and files that survive context compaction verbatim. The task
always does (`holdfast.core.authority.interventions` limits its size); of the follow-ups, the oldest are dropped first.
A snapshot carries them all."""


class TranscriptRef(Frozen):
    """Stands for the first `length` messages of the calling workflow's transcript, in an activity's input."""

    length: int
    digest: str
    """Digest of those messages' lines and of the agent's hash (`ref_digest`)."""
    compactions: int = 0
    """Number of context compactions so far; messages are counted from the last summary on."""


def ref_digest(head: str, spec_hash: str) -> str:
    """Compute the digest that binds a reference to its messages and agent: 128 bits of SHA-256 in base64url.

    Half of a SHA-256 suffices to detect a mismatch, and the history of each step stores one.
    """
    half = bytes.fromhex(digest(["ref/1", head, spec_hash]))[:16]
    return urlsafe_b64encode(half).decode("ascii").rstrip("=")


class OpenCall(Frozen):
    """A call of the last reply."""

    id: str
    """The provider's id."""
    tool: str


class TranscriptBase(Frozen):
    """The state of a transcript without the messages that the LLM has answered. Part of a snapshot."""

    compactions: int = 0
    length: int = 0
    head: str = GENESIS
    """Digest of the chain over the messages since the last compaction."""
    since: int = 0
    """Position of the first event needed to rebuild the messages."""
    shown: int = 0
    """Number of messages in the last request that the LLM answered; `shown_head` is the chain's digest there."""
    shown_head: str = GENESIS
    reply: int = 0
    """Position of the first event needed to rebuild the messages since then, normally the reply."""
    unanswered: tuple[str | int, ...] = ()
    """The messages since then, encoded, which a compaction may have to keep. A number refers to one of `originals`."""
    originals: dict[int, str] = {}
    """People's messages that hold more than text, encoded, by position; a compaction keeps them verbatim."""
    pinned: tuple[int, ...] = ()
    """The originals that the last compaction kept; rebuilding the messages since then needs them too."""
    open: dict[int, OpenCall] = {}
    """The calls whose results are not in the transcript yet, by number, in call order."""
    early: dict[int, ToolMessage] = {}
    """Results that arrived before those of earlier calls, by number."""
    waiting: dict[int, Content] = {}
    """Messages that the run has not taken from the inbox yet, by position."""
    notes: dict[int, str] = {}
    """Texts that become messages once all calls of the step have results, by position."""


class Transcript:
    """The messages to the LLM in order, encoded as lines (`holdfast.core.llm.messages.encode`).

    Args:
        base: The state that an earlier run left; the messages that the LLM had answered by then are not kept here.
        keep_all: Keep everything: context compaction adds its summary message and removes nothing.
    """

    def __init__(self, base: TranscriptBase | None = None, *, keep_all: bool = False) -> None:
        self._base = base or TranscriptBase()
        self._keep_all = keep_all
        self._originals = {position: message.encode() for position, message in self._base.originals.items()}
        self._kept = Lines()
        for message in self._base.unanswered:
            self._kept.append(self._originals[message] if isinstance(message, int) else message.encode())
        self.first = self._base.length - len(self._kept)
        """Number of messages before the ones kept here."""
        self.head = self._base.head
        self._open = dict(self._base.open)
        self._early = dict(self._base.early)
        self._waiting = dict(self._base.waiting)
        self._notes = dict(self._base.notes)
        self._unrequested = 0
        """Number of calls in the last reply whose `ToolCallRequested` has not been added yet; it follows directly."""

    @property
    def length(self) -> int:
        """Number of messages, including those that are not kept here."""
        return self.first + len(self._kept)

    @property
    def messages(self) -> list[bytes]:
        """The messages kept here."""
        return list(self._kept.since(0))

    @property
    def base(self) -> TranscriptBase:
        """The current state."""
        positions = {message: position for position, message in self._originals.items()}
        unanswered = tuple(
            positions[message] if message in positions else message.decode()
            for message in self._kept.since(self._base.shown - self.first)
        )
        originals = {position: message.decode() for position, message in self._originals.items()}
        now = {"length": self.length, "head": self.head, "unanswered": unanswered, "originals": originals}
        pending = {"open": dict(self._open), "early": dict(self._early), "waiting": dict(self._waiting)}
        return self._base.model_copy(update={**now, **pending, "notes": dict(self._notes)})

    @property
    def unanswered(self) -> int:
        """Number of messages after those that the LLM has answered."""
        return self.length - self._base.shown

    @property
    def originals(self) -> tuple[int, ...]:
        """Positions of the messages that a compaction would keep verbatim, oldest first."""
        return tuple(self._originals)

    def ref(self, spec_hash: str, *, shown: bool = False) -> TranscriptRef:
        """Make a reference to all messages, or to those that the LLM has answered (`shown`)."""
        length, head = (self._base.shown, self._base.shown_head) if shown else (self.length, self.head)
        return TranscriptRef(length=length, digest=ref_digest(head, spec_hash), compactions=self._base.compactions)

    def add(self, event: AgentEvent) -> None:
        """Append the messages that `event` completes, if any."""
        if add := READ.get(type(event)):
            add(self, event)

    def keep_original(self, position: int, content: Content) -> UserMessage:
        """Make a message from a person's content; if it contains more than text, keep it for the next compaction."""
        message = UserMessage(content=content)
        if more_than_text(content):
            self._originals[position] = encode(message)
            follow_ups = [position for position in self._originals if position != TASK]
            while follow_ups and sum(map(len, self._originals.values())) > ORIGINALS_BYTES:
                del self._originals[follow_ups.pop(0)]
        return message

    def page(self, start: int) -> bytes:
        """Return a page of messages from `start` on, one JSON text per line; empty if there are none."""
        return page(self._kept.since(start - self.first))

    def pages(self) -> Pages:
        """Return the function `page` of the transcript as it stands."""
        return self._kept.pages(self.first)

    def _start(self, event: events.RunStarted) -> None:
        if event.conversation:
            self._note(event, conversation_text(event.conversation))

    def _receive(self, event: events.UserMessageReceived) -> None:
        if event.position == TASK:
            self._append(self.keep_original(event.position, event.content))
        else:
            self._waiting[event.position] = event.content

    def _refine(self, event: events.TaskRefined) -> None:
        if event.call is None:  # else the LLM reads it as the result of its own call
            text = refinement_text(number=event.refinement, kind=event.kind, by=event.by, text=event.text)
            self._waiting[event.position] = text

    def _reclassify(self, event: events.RunReclassified) -> None:
        self._waiting[event.position] = event.notice

    def _take(self, event: events.MessageTaken) -> None:
        # It is missing if it came before the events that this is rebuilt from; the next compaction dropped it anyway.
        if event.message in self._waiting:
            self._append(self.keep_original(event.message, self._waiting.pop(event.message)))

    def _reply(self, event: events.LLMReplied) -> None:
        # The run may take a waiting message before the next reply.
        shown = {"shown": self.length, "shown_head": self.head, "reply": self._oldest(event.position)}
        self._base = self._base.model_copy(update=shown)
        if event.message is not None:
            self._append(event.message)
        self._unrequested = len(event.message.tool_calls) if event.message else 0
        self._flush()

    def _request_call(self, event: events.ToolCallRequested) -> None:
        if not event.own:  # the run's own calls are hidden from the LLM
            self._open[event.number] = OpenCall(id=event.call.id, tool=event.call.name)
            self._unrequested -= 1

    def _finish_call(self, event: events.ToolCallFinished) -> None:
        if call := self._open.get(event.number):  # else a compaction has replaced the call
            content = with_heading(partial_note(event.missing), event.content) if event.missing else event.content
            content = with_heading(repeats_note(event), content) if event.repeats else content
            self._early[event.number] = tool_message(call.id, call.tool, event.status, content)
        self._flush()

    def _reject_reply(self, event: events.ReplyRejected) -> None:
        if event.notice:
            self._append(UserMessage(content=event.notice))

    def _notify(self, event: events.BudgetLow | events.BudgetSpent | events.BudgetExtended) -> None:
        if event.notice:
            self._note(event, event.notice)

    def _reset(self, event: events.RunReset) -> None:
        if event.effects:
            self._note(event, reset_notice(event), at_once=not event.asking)

    def _compact(self, event: events.ContextCompacted) -> None:
        self._open, self._early = {}, {}
        if self._keep_all:
            return self._append(UserMessage(content=event.summary_message))
        kept = self.messages[-event.kept :] if event.kept else []
        oldest = self._base.reply if event.kept else event.position
        since = self._oldest(oldest)
        pinned = event.originals
        self._base = TranscriptBase(
            compactions=self._base.compactions + 1, since=since, reply=self._base.reply, pinned=pinned
        )
        self._kept, self.first, self.head = Lines(), 0, GENESIS
        self._append(UserMessage(content=event.summary_message))
        # During a rebuild, an earlier compaction may have kept originals that a later one dropped.
        for message in (self._originals[position] for position in pinned if position in self._originals):
            if message not in kept:  # an unanswered one comes later, in its place
                self._keep(message)
        for message in kept:
            self._keep(message)

    def _oldest(self, position: int) -> int:
        """Return the earliest position needed to rebuild from `position` on, including waiting messages and notes."""
        return min([position, *self._waiting, *self._notes])

    def _note(self, event: AgentEvent, text: str, *, at_once: bool = True) -> None:
        self._notes[event.position] = text
        if at_once:
            self._flush()

    def _flush(self) -> None:
        for number in list(self._open):
            if number not in self._early:
                break
            del self._open[number]
            self._append(self._early.pop(number))
        while self._notes and not self._open and not self._unrequested:  # the results of a step's calls stay together
            self._append(UserMessage(content=self._notes.pop(min(self._notes))))

    def _append(self, message: AnyMessage) -> None:
        self._keep(encode(message))

    def _keep(self, encoded: bytes) -> None:
        self._kept.append(encoded)
        self.head = chain(self.head, encoded)


READ: Mapping[type[events.Event], Callable[[Transcript, Any], None]] = {
    events.RunStarted: Transcript._start,
    events.UserMessageReceived: Transcript._receive,
    events.TaskRefined: Transcript._refine,
    events.RunReclassified: Transcript._reclassify,
    events.MessageTaken: Transcript._take,
    events.LLMReplied: Transcript._reply,
    events.ReplyRejected: Transcript._reject_reply,
    events.ToolCallRequested: Transcript._request_call,
    events.ToolCallFinished: Transcript._finish_call,
    events.ContextCompacted: Transcript._compact,
    events.RunReset: Transcript._reset,
    events.EventsLost: lambda transcript, event: transcript._note(event, loss_notice(event)),
    events.MemoryRecalled: lambda transcript, event: transcript._note(event, memory_text(event)),
    events.StateVerified: lambda transcript, event: transcript._note(event, verification_text(event)),
    events.RunImported: lambda transcript, event: transcript._note(event, IMPORTED),
    events.LearningRequested: lambda transcript, event: transcript._note(event, event.notice),
    events.BudgetLow: Transcript._notify,
    events.BudgetSpent: Transcript._notify,
    events.BudgetExtended: Transcript._notify,
}
"""Event type → the method that adds its messages, for the events that the LLM reads."""


def tool_message(call_id: str, tool: str, status: ToolStatus, content: Content) -> ToolMessage:
    """Return the message with the result of a call, which ended with `status`."""
    return ToolMessage(
        tool_call_id=call_id, tool=tool, content=content, failed=status in ("failed", "invalid", "cannot")
    )


# These texts enter transcripts: changing the wording changes the digests of runs recorded with the old one.


def memory_text(event: events.MemoryRecalled) -> str:
    """Format the recalled memory for the LLM."""
    return "\n\n".join(tier.text for tier in event.tiers)


def verification_text(event: events.StateVerified) -> str:
    """Format the findings of the `verify` tools after a long pause for the LLM."""
    found = "\n\n".join(f"## {finding.tool} ({finding.status})\n\n{finding.content}" for finding in event.findings)
    hours = event.paused_seconds / 3600
    return f"This run has waited for {hours:,.1f} hours. These checks ran before it resumed:\n\n{found}"


_REFINED = {
    "narrow": "It narrows the task: do less than was asked for, as the lines below say. Everything else of it stays.",
    "rescope": "It replaces the task: do what the lines below say, instead of what was asked for before.",
    "correct": "It corrects the task: where it says otherwise, the lines below are right. Everything else of it stays.",
}
"""How a refinement of each kind relates to the task."""


def refinement_text(*, number: int, kind: str, by: str, text: str) -> str:
    """Format a refinement of the task for the LLM.

    A person's text cannot be mistaken for Holdfast's: the name is quoted, and each line begins with `>`.
    """
    words = "\n".join(f"> {line}" for line in text.splitlines())
    return f"[Refinement {number} of the task, by {json.dumps(by)}] {_REFINED[kind]}\n\n{words}"


IMPORTED = (
    "[This run was moved to another place, and continues there. Its workspace is another folder: files that you have "
    "written before may be missing. Tools and what they may do can differ. Look before you rely on anything.]"
)
"""The LLM reads this after an import."""


def reset_notice(event: events.RunReset) -> str:
    """Explain a reset, and the effects that it did not undo, to the LLM."""
    done = "\n".join(f"- {effect.call or effect.tool}: {effect.words}" for effect in event.effects)
    older = f"\n- and {event.left_out} earlier ones" if event.left_out else ""
    return (
        "This conversation was reset to an earlier point. It no longer shows what came after that point, but these "
        f"calls happened and were not undone. If you repeat one exactly, it returns the same result:\n\n{done}{older}"
    )


def loss_notice(event: events.EventsLost) -> str:
    """Explain to the LLM that a part of the conversation is lost."""
    return (
        f"[{event.events - event.position} events of this conversation were lost from here on: its record was restored "
        "from an older backup. Messages, answers and calls are missing, and what the calls did was not undone. Look "
        "before you repeat anything.]"
    )


def repeats_note(event: events.ToolCallFinished) -> str:
    """Return the note, placed before the result, that tells the LLM that a call repeats itself."""
    return (
        f"[Note: this call has now had the same result {event.repeats} times, and nothing new came in between. "
        "Repeating it will not help: do something else, or answer with what you have.]\n"
    )


def partial_note(missing: str) -> str:
    """Return the note, placed before the result, that tells the LLM which part of it is missing."""
    return f"[This result is partial. Missing: {missing}]\n"


def clip(text: str, limit: int, *, address: str = "") -> str:
    """Shorten a text to its head and tail, with a note on how much is left out between them.

    Args:
        text: The text; unchanged if it is at most `limit` characters long.
        limit: Number of characters to keep.
        address: The artifact with the whole text, for `read_artifact`; empty if there is none.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - head - tail
    where = f'; read_artifact("{address}") returns the whole text' if address else ""
    return f"{text[:head]}\n[… {left_out:,} of {len(text):,} characters left out{where} …]\n{text[-tail:]}"
