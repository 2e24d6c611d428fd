"""An audit recomputes every event of a log with the functions that produced it when it was recorded.

A chain of digests shows that nothing was altered after it was written, but not who wrote it: anyone who can write to
the database can compute a chain. So the audit folds the log, and each event must follow from those before:

1. A fact from outside (a reply, an outcome, a statement, the time) is taken as it is. Its consequences are recomputed,
   including verdicts, requests, outcomes of decisions and quorum, and must equal the recorded events.
2. A call starts only after it was allowed, once, with its own effect key.
3. A signature that counted is verified with the recorded policy's keys, and with those of `trusted` if given.
4. A result that a known node has signed is what it signed, for this call (`holdfast.audit.judge.signed_results`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.audit.judge.consequences import RETURNING, PriorLog, possible_batches
from holdfast.audit.judge.events import IllegalEvent, difference, same
from holdfast.audit.judge.forks import together
from holdfast.audit.judge.signed_results import NodeKeys, SignedResults
from holdfast.audit.judge.trees import Family
from holdfast.core.authority.approvals import COUNTING
from holdfast.core.authority.policy import Policy
from holdfast.core.log import events as ev
from holdfast.core.log.references import artifacts_of
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.authority import policy_for
from holdfast.core.run.rules.loop_guard import repeats_to_report
from holdfast.core.run.state.features import PLACES, RESULT_NAMES_ARTIFACTS, SIGNED_STEERING
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect, PastEffect, describe_call, effect_key
from holdfast.core.transcript.transcript import Transcript, TranscriptBase


@dataclass(frozen=True)
class Fault:
    """An event that does not follow from those before it."""

    position: int
    reason: str


@dataclass(frozen=True)
class StartedEffect:
    """An effect that a call began."""

    number: int
    tool: str
    position: int
    """The position of its `tool_call_started`."""
    note: str
    """What people changed, and said with the approval: the heading that the result has in the log alone."""
    effect: PastEffect
    """The effect, as the ledger identifies it."""
    features: int
    """The feature level of the run that began it."""
    finished: ev.ToolCallFinished | None = None
    """The result of its tool; None if it returned nothing, or people resolved the outcome."""


Effects = dict[tuple[str, int], StartedEffect]
"""Effects by key and epoch; each has a row in the ledger."""


class Audit:
    """Judges a log from its beginning, or from a given state on.

    Args:
        thread: The id of the thread that the log must belong to; for a fork, the one at its beginning
            (`holdfast.audit.judge.forks.first_thread`).
        state: The state before the first judged event; None for the beginning of the log.
        trusted: People, gateways and their keys, from outside the log; None to trust the log's own.
        head: The digest of the event before the first judged one.
        nodes: The keys of known nodes, with which signatures of results are verified; None for no node.
        transcript: The transcript before the first judged event; not needed at the beginning of the log.
    """

    def __init__(
        self,
        thread: str,
        *,
        state: RunState | None = None,
        trusted: Policy | None = None,
        head: str = "",
        nodes: NodeKeys | None = None,
        transcript: TranscriptBase | None = None,
    ) -> None:
        self.state = state or RunState()
        self.fault: Fault | None = None
        """The first event that does not follow from those before it; later events are not judged."""
        self.signatures = 0
        """The number of verified signatures."""
        self.effects: Effects = {}
        """All effects that began."""
        self.past: dict[str, PastEffect] = {}
        """Key → effect of a branch that a reset abandoned, from the log."""
        self.artifacts: dict[str, int] = {}
        """Address → position of the first event that refers to it."""
        self.losses: list[ev.EventsLost] = []
        """The gaps that restored backups have left."""
        self.one_login: list[str] = []
        """Sentences about quorums that one login has filled."""
        self.policies: set[str] = set()
        """Digests of the policies that have been in force."""
        known = Transcript(transcript) if transcript or state is None else None
        self.results = SignedResults(nodes or {}, known)
        """The calls that nodes made, and the signatures of their results."""
        self.family = Family()
        """The beginnings and ends of its runs, and of its sub-agents according to the log."""
        self._thread = thread
        self._trusted = trusted
        self._under_way: dict[int, tuple[str, int]] = {}
        """Number of a call → its effect, until the call has a result."""
        self._last = ""
        """The type of the last event."""
        self._head = head
        self._forked: ev.RunForked | None = None
        """The last fork, until its run starts."""
        self._started: ev.RunStarted | None = None
        """The last start, until its agent is loaded."""

    @property
    def thread(self) -> str:
        """The id of the thread to which the last judged event belongs."""
        return self._thread

    def take(self, events: Sequence[ev.AgentEvent], *, more: bool = False) -> int:
        """Judge the next events, up to the first fault; return the number that was judged.

        Args:
            events: The events.
            more: Whether more will follow. Then the last ones are left for the next call, because events that were
                recorded together are judged together.
        """
        index = 0
        while index < len(events) and self.fault is None:
            try:
                reach = self._reach(events[index])
                if more and index + reach > len(events):
                    break
                index += self._judge(together(events[index : index + reach]))
            # A forged log can hold anything, in any order, so the fold can raise anything.
            except Exception as error:
                reason = (
                    str(error)
                    if isinstance(error, IllegalEvent)
                    else f"nothing that came before leads to it ({error!r})"
                )
                self.fault = Fault(events[index].position, f"{events[index].type}: {reason}")
        return index

    def _reach(self, event: ev.AgentEvent) -> int:
        """Return the largest number of events that can be recorded together, beginning with this one."""
        state, message = self.state, event.message if isinstance(event, ev.LLMReplied) else None
        calls = message.tool_calls if message else ()
        return 10 + 4 * max(
            len(calls), len(state.calls.current), len(state.authority.requests), len(state.inbox.waiting)
        )

    def _judge(self, events: Sequence[ev.AgentEvent]) -> int:
        """Judge the first of `events` and its consequences; return their number.

        Raises:
            IllegalEvent: The first event does not follow from those before it.
        """
        first, nearest = events[0], None
        if self.state.thread not in ("", self._thread):
            raise IllegalEvent(f"it belongs to thread {self.state.thread!r}, and this is {self._thread!r}")
        before = PriorLog(self.state, self._thread, self._head, self._last, self._forked, self._started)
        for expected in filter(None, possible_batches(before, first, events)):
            differs = next((n for n, pair in enumerate(zip(expected, events, strict=False)) if not same(*pair)), None)
            if differs is None:
                matched = [
                    event for event, wanted in zip(events, expected, strict=False) if not isinstance(wanted, type)
                ]
                for event in matched:
                    self._fold(event)
                return len(matched)
            if nearest is None or differs > nearest[0]:
                nearest = differs, expected[differs]
        if nearest is None:
            raise IllegalEvent("nothing that came before leads to it")
        index, wanted = nearest
        self.fault = Fault(events[index].position, f"{events[index].type}: {difference(wanted, events[index])}")
        return 1

    def _fold(self, event: ev.AgentEvent) -> None:
        if isinstance(event, ev.Proven):
            self._check_proof(event)
        if isinstance(event, ev.DecisionReceived) and event.one_login:
            people = f"{', '.join(event.one_login)} on request {event.request}"
            self.one_login.append(f"event {event.position}: the votes of {people} came from one login")
        if isinstance(event, ev.AgentLoaded):
            self.policies.add(event.spec.policy.hash)
        if isinstance(event, ev.PolicyChanged):
            self.policies.add(event.policy.hash)
        if isinstance(event, ev.RunStarted | ev.RunForked):
            self.policies.update(policy.hash for policy in event.policies)
        if isinstance(event, ev.RunReset):
            self._check_past(event)
            self.past.update({effect.key: effect for effect in event.effects})
        if isinstance(event, ev.RunForked):  # earlier events and their effects belong to the original
            self._thread, self.effects, self.past, self._under_way = event.thread, {}, {}, {}
            self._forked = event
        if isinstance(event, ev.EventsLost):
            self.losses.append(event)
        if isinstance(event, ev.ToolCallStarted):
            self._begun(event)
        if isinstance(event, ev.ToolCallFinished):
            if repeats_to_report(self.state, event) != event.repeats:
                raise IllegalEvent(f"call {event.number} has not ended like this {event.repeats} times in a row")
            self._finished(event)
        self.results.take(self.state, event)
        for address in artifacts_of(event, named=self.state.features >= RESULT_NAMES_ARTIFACTS):
            self.artifacts.setdefault(address, event.position)
        before, self.state = self.state, evolve(self.state, event)
        self.family.take(before, event, self.state)
        self._head, self._last = event.digest, event.type
        if isinstance(event, ev.RunStarted):
            self._forked, self._started = None, event
        elif isinstance(event, ev.AgentLoaded | ev.RunImported):
            self._started = None

    # Signatures and effects.

    def _check_proof(self, event: ev.Proven) -> None:
        """Check that a signature that counted was made with a trusted key."""
        trusted, by = self._trusted, getattr(event, "by", "")
        if not event.proof:
            counts = getattr(event, "outcome", "accepted") in (*COUNTING, "judged_anew")
            claims = isinstance(event, ev.UserMessageReceived) or self._steers_by_claim(event)
            claims = claims or (isinstance(event, ev.CompactionRequested) and not event.summary)
            counts = counts and not claims and not self._counts_for_others(event)
            if trusted and trusted.signatures == "required" and counts:
                raise IllegalEvent(f"it counted, {by} did not sign it, and the given policy requires signed decisions")
            return
        self.signatures += 1
        if trusted is None:
            return
        approver = trusted.approver(by)
        keys = approver.keys if approver else ()
        if event.proof == "vouched":
            keys = tuple(key for gateway in trusted.gateways for key in gateway.keys)
        if event.key not in keys:
            owner = by if event.proof == "signed" else "any gateway"
            raise IllegalEvent(f"it was signed with {event.key}, which is no key of {owner} among the given keys")

    def _check_past(self, event: ev.RunReset) -> None:
        """Check that a reset names only effects of this thread: the key of another thread's effect would count here.

        Raises:
            IllegalEvent: An effect is of another thread.
        """
        for each in event.effects:
            own = effect_key(
                thread=self._thread, first_run_id=each.first_run_id, number=each.number, call_digest=each.call_digest
            )
            if each.key != own:
                raise IllegalEvent(
                    f"effect {each.key} of {each.tool} is not of this thread: its call {each.number} has {own}"
                )

    def _steers_by_claim(self, event: ev.Proven) -> bool:
        """Whether this steers a run that anyone may steer, or is the scheduled end of a pause."""
        steers = isinstance(event, ev.RunPaused | ev.RunResumed | ev.RunUnblocked | ev.MoveRequested)
        return steers and (self.state.features < SIGNED_STEERING or not getattr(event, "by", ""))

    def _counts_for_others(self, event: ev.Proven) -> bool:
        """Whether a decision counted only for policies other than the trusted one, which need no signature."""
        request = self.state.authority.request(event.request) if isinstance(event, ev.DecisionReceived) else None
        if request is None or not isinstance(event, ev.DecisionReceived) or not request.requirements:
            return False
        asking = [policy_for(self.state, request.requirements[each.requirement]) for each in event.standings]
        trusted = self._trusted.hash if self._trusted else ""
        return all(policy is not None and policy.hash != trusted for policy in asking)

    def _begun(self, event: ev.ToolCallStarted) -> None:
        call = self.state.calls.get(event.number)
        tool = self.state.spec.tool(call.call.name) if self.state.spec else None
        if tool and tool.effect is not Effect.READ and not event.undo:
            past = call.past
            effect = PastEffect(
                number=past.number if past else event.number,
                first_run_id=past.first_run_id if past else self.state.origin.first_run_id,
                tool=call.call.name,
                call_digest=call.call.digest,
                key=event.key,
                epoch=call.epoch,
                call=describe_call(call.call),
            )
            note, level = call.people_note, self.state.features
            begun = StartedEffect(event.number, call.call.name, event.position, note, effect, level)
            self.effects[event.key, call.epoch] = begun
            self._under_way[event.number] = event.key, call.epoch

    def _finished(self, event: ev.ToolCallFinished) -> None:
        effect = self._under_way.pop(event.number, None)
        returned = any(call.number == event.number and call.phase in RETURNING for call in self.state.calls.current)
        if event.not_called and (event.status not in ("cannot", "failed") or self.state.features < PLACES):
            raise IllegalEvent(f"call {event.number} has the status {event.status}, and no node took it")
        if effect and event.not_called:
            del self.effects[effect]
        elif effect and returned and event.status in ("ok", "failed", "cannot"):
            self.effects[effect] = replace(self.effects[effect], finished=event)
