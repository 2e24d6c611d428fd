"""The transcript: the messages an LLM is sent, as a fold over events, kept as the bytes that every request carries.

1. A message is encoded once, when it enters, and frozen: request n+1 begins with the bytes of request n, unless the
   transcript was folded between them.
2. Tool results enter in call order, whatever order they came in. A person's message enters when it is taken.
3. A fold replaces the messages by one hand-off message and the last few; the events it was made of stay in the log.
   People's messages that hold more than text follow the hand-off, byte for byte as they were before.
4. The workflow holds what is new since its Temporal run began; activities are handed a reference, ask the workflow
   for what they have not seen, and rebuild what is older from the permanent record.
"""

from base64 import urlsafe_b64encode
from typing import assert_never

from holdfast.base.digests import GENESIS, chain, digest
from holdfast.base.lines import Lines, page
from holdfast.base.models import Frozen
from holdfast.llm.messages import AssistantMessage, Content, ToolMessage, UserMessage, encode, more_than_text
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunReset,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)

TASK = 1
"""The position of the event that holds a thread's task."""

ORIGINALS_BYTES = 1_000_000
"""Of people's messages with images and files that survive a fold as they were sent. The task is always among them
(`holdfast.authority.follow_ups` bounds it); of follow-ups, the oldest make room. A snapshot carries them all."""


class TranscriptRef(Frozen):
    """Stands for the first `length` messages of the calling workflow's transcript, in an activity's input."""

    length: int
    digest: str
    """Of those messages' bytes and the agent's hash (`ref_digest`)."""
    compactions: int = 0
    """How often the transcript was folded before: the messages since are counted from the hand-off on."""


def ref_digest(head: str, spec_hash: str) -> str:
    """What ties a reference to its messages and its agent: 128 bits of a SHA-256, as 22 characters of base64url.

    Half of it is enough against confusion, and each step's history holds one.
    """
    half = bytes.fromhex(digest([head, spec_hash]))[:16]
    return urlsafe_b64encode(half).decode("ascii").rstrip("=")


class TranscriptBase(Frozen):
    """Where a transcript stands, without the messages that the LLM has answered. Part of a snapshot."""

    compactions: int = 0
    length: int = 0
    head: str = GENESIS
    """Digest of the chain over the messages since the last fold."""
    since: int = 0
    """Position of the first event that the messages can be rebuilt from."""
    shown: int = 0
    """How many messages the last request had that the LLM answered; the chain's digest then is `shown_head`."""
    shown_head: str = GENESIS
    reply: int = 0
    """Position of the first event that the messages since then can be rebuilt from: the reply, as a rule."""
    unanswered: tuple[str | int, ...] = ()
    """The messages since then, encoded: what a fold may have to keep. A number stands for one of `originals`."""
    originals: dict[int, str] = {}
    """People's messages that hold more than text, encoded, by position: what a fold carries on as it is."""
    pinned: tuple[int, ...] = ()
    """The originals that the last fold carried on: the messages since then are rebuilt from these, too."""
    open: dict[int, str] = {}
    """Numbers and provider's ids of calls whose results have not entered, in call order."""
    early: dict[int, str] = {}
    """Results that came before those of earlier calls."""
    waiting: dict[int, Content] = {}
    """Messages that were not taken yet, by position."""
    notes: dict[int, str] = {}
    """What the LLM is to read when the calls of the step have their results, as messages, by position."""


class Transcript:
    """The messages that the LLM is shown, encoded, in order.

    Args:
        base: Where an earlier run left it; the messages that the LLM had answered by then are not kept here.
        whole: Keep everything: a fold adds its hand-off message and removes nothing.
    """

    def __init__(self, base: TranscriptBase | None = None, *, whole: bool = False) -> None:
        self._base = base or TranscriptBase()
        self._whole = whole
        self._originals = {position: message.encode() for position, message in self._base.originals.items()}
        self._kept = Lines()
        for message in self._base.unanswered:
            self._kept.append(self._originals[message] if isinstance(message, int) else message.encode())
        self.first = self._base.length - len(self._kept)
        """How many messages come before the ones kept here."""
        self.head = self._base.head
        self._open = dict(self._base.open)
        self._early = dict(self._base.early)
        self._waiting = dict(self._base.waiting)
        self._notes = dict(self._base.notes)
        self._to_come = 0
        """Calls of the last reply whose events are still to come; they are recorded together with it."""

    @property
    def length(self) -> int:
        """How many messages there are, those that are not kept here included."""
        return self.first + len(self._kept)

    @property
    def messages(self) -> list[bytes]:
        """The messages kept here."""
        return list(self._kept.since(0))

    @property
    def base(self) -> TranscriptBase:
        """Where it stands now."""
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
        """How many messages came after those that the LLM has answered."""
        return self.length - self._base.shown

    @property
    def originals(self) -> tuple[int, ...]:
        """Positions of the messages that a fold would carry on as they were sent, oldest first."""
        return tuple(self._originals)

    def ref(self, spec_hash: str, *, shown: bool = False) -> TranscriptRef:
        """A reference to all messages, or to those that the LLM has answered already (`shown`)."""
        length, head = (self._base.shown, self._base.shown_head) if shown else (self.length, self.head)
        return TranscriptRef(length=length, digest=ref_digest(head, spec_hash), compactions=self._base.compactions)

    def add(self, event: AgentEvent) -> None:
        """Append the messages that `event` completes, if any."""
        match event:
            case UserMessageReceived():
                if event.position == TASK:
                    self._append(self.keep_original(event.position, event.content))
                else:
                    self._waiting[event.position] = event.content
            case MessageTaken():
                self._append(self.keep_original(event.message, self._waiting.pop(event.message)))
            case MemoryRecalled():
                self._note(event, recollection(event))
            case RunReset():
                if event.effects:
                    self._note(event, looking_back(event), at_once=not event.asking)
            case LLMReplied():
                # A message that waits now may be taken before the next reply.
                shown = {"shown": self.length, "shown_head": self.head, "reply": self._oldest(event.position)}
                self._base = self._base.model_copy(update=shown)
                if event.message is not None:
                    self._append(event.message)
                self._to_come = len(event.message.tool_calls) if event.message else 0
                self._flush()
            case ReplyRejected():
                if event.notice:
                    self._append(UserMessage(content=event.notice))
            case ToolCallRequested():
                self._open[event.number] = event.call.id
                self._to_come -= 1
            case ToolCallFinished():
                self._early[event.number] = event.content
                self._flush()
            case StateVerified():
                self._note(event, verification(event))
            case ContextCompacted():
                self._fold(event)
            case (
                RunStarted()
                | RunContinued()
                | RunBlocked()
                | RunUnblocked()
                | RunFinished()
                | AgentLoaded()
                | MessageAwaited()
                | ContextExceeded()
                | VerdictGiven()
                | ToolCallStarted()
                | ApprovalRequested()
                | ReconcileRequested()
                | ApprovalReminded()
                | ApprovalEscalated()
                | ApprovalExpired()
                | DecisionReceived()
                | RuleRemembered()
                | RuleRevoked()
                | AuthorityDelegated()
                | DelegationRevoked()
                | BaselineRecorded()
                | SignalRejected()
                | RefusalsCounted()
            ):
                pass  # the LLM reads nothing of these
            case _:
                assert_never(event)

    def keep_original(self, position: int, content: Content) -> UserMessage:
        """Keep what a person sent for the next fold, if it holds more than text; returns it as a message."""
        message = UserMessage(content=content)
        if more_than_text(content):
            self._originals[position] = encode(message)
            follow_ups = [position for position in self._originals if position != TASK]
            while follow_ups and sum(map(len, self._originals.values())) > ORIGINALS_BYTES:
                del self._originals[follow_ups.pop(0)]
        return message

    def page(self, start: int) -> bytes:
        """Messages from `start` on, one JSON text a line, a page of them; empty when there are none."""
        return page(self._kept.since(start - self.first))

    def _fold(self, event: ContextCompacted) -> None:
        self._open, self._early = {}, {}
        if self._whole:
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
        for message in (self._originals[position] for position in pinned):
            if message not in kept:  # one that was not answered yet stands behind, in its place
                self._keep(message)
        for message in kept:
            self._keep(message)

    def _oldest(self, position: int) -> int:
        """Where to begin in order to have all from `position` on, and what waits to be shown."""
        return min([position, *self._waiting, *self._notes])

    def _note(self, event: AgentEvent, text: str, *, at_once: bool = True) -> None:
        self._notes[event.position] = text
        if at_once:
            self._flush()

    def _flush(self) -> None:
        for number in list(self._open):
            if number not in self._early:
                break
            self._append(ToolMessage(tool_call_id=self._open.pop(number), content=self._early.pop(number)))
        while self._notes and not self._open and not self._to_come:  # the results of a step's calls stand together
            self._append(UserMessage(content=self._notes.pop(min(self._notes))))

    def _append(self, message: UserMessage | AssistantMessage | ToolMessage) -> None:
        self._keep(encode(message))

    def _keep(self, encoded: bytes) -> None:
        self._kept.append(encoded)
        self.head = chain(self.head, encoded)


def recollection(event: MemoryRecalled) -> str:
    """What the LLM is shown of the agent's memory."""
    return "\n\n".join(tier.text for tier in event.tiers)


def verification(event: StateVerified) -> str:
    """What the LLM is told after a long pause."""
    found = "\n\n".join(f"## {finding.tool} ({finding.status})\n\n{finding.content}" for finding in event.findings)
    hours = event.paused_seconds / 3600
    return f"This run has waited for {hours:,.1f} hours. What was looked up before it went on:\n\n{found}"


def looking_back(event: RunReset) -> str:
    """What the LLM is told after a reset."""
    done = "\n".join(f"- {effect.call or effect.tool}: {effect.words}" for effect in event.effects)
    older = f"\n- and {event.left_out} older ones" if event.left_out else ""
    return (
        "This conversation was taken back to an earlier point. What came after that point is not in it any more, but "
        f"happened, and was not taken back. A call that you repeat word for word has that result:\n\n{done}{older}"
    )


def clip(text: str, limit: int, *, address: str = "") -> str:
    """`text` if it is at most `limit` characters long; else its head and tail, and how much lies between.

    Args:
        text: The text.
        limit: Characters that are kept.
        address: Where the whole text can be read (`read_artifact`); empty if nowhere.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - head - tail
    where = f'; read_artifact("{address}") has all of it' if address else ""
    return f"{text[:head]}\n[… {left_out:,} of {len(text):,} characters left out{where} …]\n{text[-tail:]}"
