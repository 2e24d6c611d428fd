"""A thread, as a program holds it: its result, state, events and messages, and what people tell it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.authority.follow_ups import WhenBusy
from holdfast.authority.policy import Policy
from holdfast.authority.refinements import RefinementKind
from holdfast.authority.statements import Decision, DecisionKind, Lift
from holdfast.base.names import person_name
from holdfast.budget.budget import Amounts
from holdfast.errors import NotAccepted, Refused, SettingsError
from holdfast.llm.blocks import Content
from holdfast.llm.messages import AnyMessage, from_json
from holdfast.log.events import AgentEvent
from holdfast.log.upcasters import decode_event
from holdfast.portable.manifest import Exported
from holdfast.runtime.api.verifying import verify_thread
from holdfast.runtime.api.views import PendingRequest, Result, ThreadState
from holdfast.runtime.api.waiting import Until, result_of, wait
from holdfast.runtime.audit.verdicts import Check, Verification
from holdfast.runtime.client import decisions, extending, forks, messages, pausing, refining, steering, waking
from holdfast.runtime.client.decisions import UpdateResult
from holdfast.runtime.client.follow import follow as follow_events
from holdfast.runtime.client.messages import MessageResult
from holdfast.runtime.client.restarts import restart
from holdfast.runtime.client.start_options import StartOptions
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import check_shown, read_key, signed
from holdfast.runtime.programs import setup_command
from holdfast.runtime.reading.record import Evidence
from holdfast.runtime.reading.states import decode_lines

_log = logging.getLogger("holdfast.client")
AnswerT = TypeVar("AnswerT", UpdateResult, MessageResult)
OpenEvidence = Callable[[], Awaitable[Evidence]]
"""Opens the ledger and the artifact store, when they are first needed."""
FindAnchors = Callable[[], Sequence[Path]]
"""Finds the anchors of the settings that can be read here."""


class Thread:
    """A thread. `Client.start` and `Client.thread` make it; making one asks no server.

    Reading works without a worker, from history and the permanent record; a note in the log `holdfast.client` says
    when that is what was read. Every method raises `ThreadNotFound` if there is no such thread, and
    `ServerUnreachable` if Temporal does not answer.
    """

    def __init__(
        self,
        thread: str,
        *,
        threads: Threads,
        by: str = "",
        key: Path | None = None,
        evidence: OpenEvidence | None = None,
        anchors: FindAnchors | None = None,
    ) -> None:
        self.id = thread
        """The thread id, which is Temporal's workflow id."""
        self._threads = threads
        self._by = by
        self._key = key
        self._evidence = evidence
        self._anchors = anchors

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    def _beside(self, thread: str) -> "Thread":
        return Thread(
            thread,
            threads=self._threads,
            by=self._by,
            key=self._key,
            evidence=self._evidence,
            anchors=self._anchors,
        )

    async def result(self, *, until: Until = "end", timeout: float | None = None) -> Result:
        """Wait for the run, and return what it has come to.

        It waits through restarts of servers and workers.

        Args:
            until: `end`: until the run has completed. `attention`: or before that, until it waits for an approval, a
                message or a retry, is dormant, or is paused, by a person or in Temporal; the status says for what.
            timeout: Seconds; None to wait for as long as it takes.

        Raises:
            RunFailed: The run failed.
            RunCancelled: The run was cancelled.
            HistoryForged: Our own processes did not make the run.
            TimeoutError: Neither happened in time. The run continues.
        """
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                state = await wait(self._threads, self.id, until=until)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"thread {self.id!r} has no result after {timeout:g} s; its run continues") from None
        return await result_of(self._threads, state)

    async def state(self) -> ThreadState:
        """Return where the thread stands now."""
        return ThreadState.model_validate(await self._threads.state(self.id, note=_log.info))

    async def events(self, *, after: int = -1, follow: bool = False) -> AsyncIterator[AgentEvent]:
        """Yield the thread's events, oldest first.

        Args:
            after: The position of the last event that you have; -1 for none.
            follow: Continue with events as they are recorded, until the latest run has ended.

        Raises:
            EventsMissing: Some of them can no longer be read. When following, they are skipped instead.
        """
        if follow:
            async for each in follow_events(self._threads, self.id, after=after, patient=True, note=_log.info):
                yield decode_event(json.dumps(each))
        else:
            lines = self._threads.reader.lines(self.id, after + 1, found=None, note=_log.info)
            async for event in decode_lines(lines):
                yield event

    async def messages(self, *, active: bool = False) -> list[AnyMessage]:
        """Return the messages between people, agent and tools, without the system message.

        Args:
            active: Only what the LLM sees now, after context compaction.
        """
        found = self._threads.messages(self.id, active=active, note=_log.info)
        return [from_json(each) async for each in found]

    async def export(
        self,
        path: Path | str,
        *,
        redact: bool = False,
        artifacts: bool = True,
        subagents: bool = True,
        key: Path | str | None = None,
        anchors: Sequence[Path | str] | None = None,
    ) -> Exported:
        """Write the thread to a new file that verifies offline, as `holdfast export` does.

        An open run is exported as far as it is recorded. The ledger and the artifacts come from the database that the
        client knows; `left_out` says which of them the file does not have, and `unread` which sub-agents' logs could
        not be read. `seals` says how many seals of nodes it has.

        Args:
            path: The file. An existing one is never overwritten.
            redact: Drop bodies and artifacts, and keep digests.
            artifacts: Whether the file is to have the artifacts.
            subagents: Whether the file is to have the logs of the sub-agents, of theirs, and so on.
            key: The file of the private key to sign with; None for the client's `key`. Without one, the file is not
                signed, and anybody could have made it.
            anchors: Folders, git repositories and files with seals of the thread, which the file is to have; None for
                those that `HOLDFAST_ANCHORS` names and that can be read here, which excludes webhooks; empty for none.

        Raises:
            ExportFailed: The file exists, cannot be written or would be too large; or the id is that of a loop.
            EventsMissing: Some of the thread's events can no longer be read.
            ArtifactNotFound: The store lacks an artifact that an event refers to.
            SettingsError: The key or an anchor cannot be read, or a package is missing.
        """
        if not (find_spec("psycopg") and find_spec("securesystemslib")):
            raise SettingsError(f"exporting needs packages of the command line: {setup_command('cli')}")
        from holdfast.runtime.audit.anchors import Anchors
        from holdfast.runtime.portable.export import export_thread

        places = self._places(anchors)
        chosen = Path(key) if key else self._key
        return await export_thread(
            self._threads,
            self.id,
            Path(path),
            evidence=await self._evidence() if self._evidence else None,
            private=read_key(chosen) if chosen else None,
            redact=redact,
            artifacts=artifacts,
            anchors=Anchors(places) if places else None,
            subagents=subagents,
            note=_log.info,
        )

    async def verify(
        self,
        *,
        keys: Path | str | None = None,
        anchors: Sequence[Path | str] | None = None,
        nodes: Sequence[str] = (),
        require: Sequence[Check] = (),
    ) -> Verification:
        """Check that the thread is what was recorded, as `holdfast verify` does.

        The answer is in `verdict`: `proven`, `altered`, or `not_proven`, where nothing that could be checked is wrong,
        and `unchecked` says what could not be. The seals of Temporal's histories are checked if the client has the
        fleet key.

        Args:
            keys: A file with people, gateways and their keys, as a policy lists them; None to trust the log's own.
            anchors: Where workers have sealed the record; None for those of `HOLDFAST_ANCHORS` that can be read here.
            nodes: Public keys of the nodes whose seals count; empty for all nodes.
            require: What must have been checked; without one of these, the answer is not `proven`.

        Raises:
            SettingsError: A file or an anchor cannot be read, or a package is missing.
        """
        return await verify_thread(
            self._threads,
            self.id,
            evidence=await self._evidence() if self._evidence else None,
            keys=keys,
            anchors=self._places(anchors),
            nodes=nodes,
            require=require,
        )

    def _places(self, anchors: Sequence[Path | str] | None) -> Sequence[Path]:
        """Where seals are: in these anchors; with None, in those of the settings."""
        from holdfast.runtime.anchors.setting import given_place

        own = self._anchors if anchors is None else None
        return own() if own else [given_place(Path(place)) for place in anchors or ()]

    async def move(
        self,
        path: Path | str,
        *,
        to: str = "",
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> Exported:
        """End the thread here as `moved`, and write it to a new file that `Client.import_thread` continues elsewhere.

        Tools under way end first. Repeat it where it fails: a thread that has been moved is only written.

        Args:
            path: The file. An existing one is never overwritten.
            to: The id of the only place that may import it: `Client.place` there; empty for any.
            by: Who moves it; None for the client's `by`.
            reason: Why; it is in the log.
            key: As for `export`.

        Raises:
            NotAccepted: The run stays here: it is a sub-agent's or a loop's, or has sub-agents that are open.
            NoWorker: No worker answers.
            ExportFailed: The file exists, or would lack the ledger or the artifacts.
            SettingsError: The key cannot be read, nothing says who moves it, or a package is missing.
        """
        if not (find_spec("psycopg") and find_spec("securesystemslib")):
            raise SettingsError(f"moving needs packages of the command line: {setup_command('cli')}")
        from holdfast.runtime.portable.moving import move_thread

        chosen = Path(key) if key else self._key
        return await move_thread(
            self._threads,
            self.id,
            Path(path),
            by=self._person(by),
            reason=reason,
            to=to,
            evidence=await self._evidence() if self._evidence else None,
            private=read_key(chosen) if chosen else None,
            note=_log.info,
        )

    async def pending(self) -> tuple[PendingRequest, ...]:
        """Return the open requests: calls that wait for approval, and calls whose outcome is unknown."""
        return (await self.state()).pending

    async def decide(
        self,
        request: PendingRequest | str,
        decision: DecisionKind,
        *,
        by: str | None = None,
        reason: str = "",
        digest: str | None = None,
        arguments: dict[str, Any] | None = None,
        result: str | None = None,
        remember: bool = False,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Decide a request.

        Args:
            request: One of `pending`, which binds the decision to what it shows; or its id.
            decision: `approve`, `deny` or `respond`; for a call whose outcome is unknown `happened`, `absent`, `undo`
                or `abandon`.
            by: Who decides; None for the client's `by`.
            reason: Why; the agent reads it.
            digest: The digest of what the person has seen; None for that of the `PendingRequest`.
            arguments: With `approve`: run with these in place of the LLM's.
            result: With `respond` and `happened`: what the agent is to read.
            remember: With `approve`: allow the same call from now on, in this thread.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `waiting_for_quorum`, `judged_anew`, or `sent` where no worker has answered: Temporal keeps the
            decision for the next one.

        Raises:
            NotAccepted: It does not count; `outcome` says why.
            Refused: What is to be signed is not what its digest stands for, or no digest says what it is.
            SettingsError: Nothing says who decides, or the key cannot be read.
        """
        shown = request if isinstance(request, PendingRequest) else None
        given = {
            "decision": decision,
            "request": shown.request if shown else request,
            "by": self._person(by),
            "reason": reason or None,
            "digest": digest or (shown.digest if shown else None),
            "arguments": arguments,
            "result": result,
            "remember": remember or None,
        }
        payload = {name: value for name, value in given.items() if value is not None}
        if path := Path(key) if key else self._key:
            if "digest" not in payload:
                raise Refused("a signed decision is bound to what was seen: pass one of `pending`, or its digest")
            if shown:
                check_shown(shown.model_dump(mode="json"))
            payload = signed(payload, Decision, thread=self.id, private=read_key(path))
        answer = await decisions.decide(self._threads, self.id, payload)
        return self._counted(answer, f"request {given['request']} of thread {self.id!r}")

    async def say(
        self,
        message: Content,
        *,
        by: str | None = None,
        when_busy: WhenBusy = "queue",
        key: Path | str | None = None,
    ) -> MessageResult:
        """Send the agent a message. If the thread is closed, a new run continues it, with the message as its task.

        Args:
            message: Text, or content blocks.
            by: Who says it; None for the client's `by`.
            when_busy: While the agent is at work: `queue` it until the step has ended, `interrupt` the LLM call, or
                `reject` it.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `queued`, `interrupting`, `reopened`, or `sent` where no worker has answered: Temporal keeps
            the message for the next one.

        Raises:
            NotAccepted: The agent will not read it; `outcome` says why.
            ServerUnreachable: Besides: it is unknown whether it arrived; look at `messages` before you repeat it.
        """
        path = Path(key) if key else self._key
        name = named(self._by if by is None else by)
        private = read_key(path) if path else None
        answer = await messages.say(self._threads, self.id, message, by=name, when_busy=when_busy, private=private)
        return self._counted(answer, f"message to thread {self.id!r}")

    async def refine(
        self,
        kind: RefinementKind,
        text: str,
        *,
        by: str | None = None,
        when_busy: Literal["queue", "interrupt"] = "queue",
        key: Path | str | None = None,
    ) -> MessageResult:
        """Refine the task of an open run: narrow it, replace it or correct it. The task itself stays readable.

        The agent reads who refined the task, and how. Open requests, approvals and the policy stay as they are.

        Args:
            kind: `narrow`: less than before; `rescope`: something else instead; `correct`: the task says something
                wrong.
            text: What the task is from now on, at most 8,000 bytes.
            by: Who refines it; None for the client's `by`.
            when_busy: While the agent is at work: `queue` it until the step has ended, or `interrupt` the LLM call.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `queued`, `interrupting`, or `sent` where no worker has answered: Temporal keeps it for the
            next one.

        Raises:
            NotAccepted: The task is as before; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a person
                who may not refine it, `too_late` for a closed run, which `say` continues, `too_many` where the thread
                has 50 refinements, or `unknown_update` for a run that a worker before 0.2.0 began.
            SettingsError: Nothing says who refines it, or the key cannot be read.
        """
        path = Path(key) if key else self._key
        payload = {"kind": kind, "text": text, "by": self._person(by), "when_busy": when_busy}
        private = read_key(path) if path else None
        answer = await refining.refine(self._threads, self.id, payload, private=private)
        return self._counted(answer, f"refinement of thread {self.id!r}")

    async def extend(
        self, more: Amounts, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Extend the budget of an open run; one that the end of its budget has blocked continues.

        Args:
            more: What is added to the limits: `Amounts(usd="1")`. Seconds count from now on.
            by: Who extends it; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps it for the next one.

        Raises:
            NotAccepted: The budget is as before; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a
                person who may not extend it, `too_much`, `no_budget` where the run has no such limit, or `too_late`
                for a closed run.
            SettingsError: Nothing says who extends it, or the key cannot be read.
        """
        path = Path(key) if key else self._key
        payload = {**more.model_dump(mode="json", exclude_none=True), "by": self._person(by), "reason": reason}
        private = read_key(path) if path else None
        answer = await extending.extend(self._threads, self.id, payload, private=private)
        return self._counted(answer, f"extension of thread {self.id!r}")

    async def retry(self, *, by: str | None = None, reason: str = "", key: Path | str | None = None) -> UpdateResult:
        """Resume a blocked run, once its cause is fixed.

        Args:
            by: Who says that it is; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Raises:
            NotAccepted: It stays blocked; `outcome` is `budget_spent`, or `unsigned`, `bad_signature` or `not_entitled`
                where the policy requires signatures.
            Refused: The run is not blocked.
            SettingsError: Nothing says who retries it, or the key cannot be read.
        """
        answer = await steering.retry(
            self._threads, self.id, by=self._person(by), reason=reason, private=self._private(key)
        )
        return self._counted(answer, f"retry of thread {self.id!r}")

    async def compact(self, *, by: str | None = None, reason: str = "") -> UpdateResult:
        """Compact the agent's context: at once while it waits for a message, else at the end of the step.

        A summary takes the messages' place; the log keeps them. The task, what people said, and calls that were denied
        or whose outcome is unknown stay word for word.

        Args:
            by: Who asks for it; None for the client's `by`.
            reason: Why; it is in the log.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing is compacted; `outcome` is `nothing_to_compact`, `duplicate`, `too_late` for a closed
                run, or `unknown_update` for a run that a worker before 0.2.0 began.
            SettingsError: Nothing says who asks for it.
        """
        answer = await decisions.compact(self._threads, self.id, by=self._person(by), reason=reason)
        return self._counted(answer, f"compaction of thread {self.id!r}")

    async def lift(
        self, constraint: int, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Lift a constraint: calls that a tool said it cannot make are judged again like any others.

        The LLM does not read about it: send it a message with `say` if it should try again.

        Args:
            constraint: Its number, as `state` lists it in `constraints`; 0 to let the effects of a fork run as the
                policy says.
            by: Who lifts it; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps it for the next one.

        Raises:
            NotAccepted: It still stands; `outcome` is `unknown_request` where there is no such constraint, or
                `not_entitled`, `unsigned` or `bad_signature` for a person who may not lift it.
            SettingsError: Nothing says who lifts it.
        """
        payload: dict[str, Any] = {"constraint": constraint, "by": self._person(by), "reason": reason}
        if path := Path(key) if key else self._key:
            payload = signed(payload, Lift, thread=self.id, private=read_key(path))
        answer = await decisions.lift(self._threads, self.id, payload)
        return self._counted(answer, f"constraint {constraint} of thread {self.id!r}")

    async def pause(
        self,
        *,
        by: str | None = None,
        reason: str = "",
        until: datetime | timedelta | None = None,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Pause the run: what is under way ends, and nothing else starts before it resumes.

        Decisions and messages are recorded meanwhile, and count when it resumes; requests are reminded of and expire;
        `cancel` ends it at once. Of a paused run, this changes the reason and the end.

        Args:
            by: Who pauses it; None for the client's `by`.
            reason: Why; it is in the log.
            until: When it resumes by itself: a time with a time zone, or how long from now. None for never.
            key: The file of the private key to sign with; None for the client's `key`. Only a signed statement ends a
                signed pause.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `duplicate`, `too_late` where the run or `until` is over,
                `too_many`, `malformed`, `unsigned`, `bad_signature`, or `unknown_update` for a run that a worker before
                0.2.0 began.
            SettingsError: Nothing says who pauses it, `until` has no time zone, or the key cannot be read.
        """
        end = datetime.now(UTC) + until if isinstance(until, timedelta) else until
        if end and end.tzinfo is None:
            raise SettingsError("give `until` a time zone: datetime(…, tzinfo=UTC)")
        answer = await pausing.pause(
            self._threads, self.id, by=self._person(by), reason=reason, until=end, private=self._private(key)
        )
        return self._counted(answer, f"pause of thread {self.id!r}")

    async def resume(
        self,
        *,
        by: str | None = None,
        reason: str = "",
        say: Content | None = None,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Resume the run after a pause.

        Args:
            by: Who resumes it; None for the client's `by`.
            reason: Why; it is in the log.
            say: A message for the agent, which it reads before anything else; None for none.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `not_paused`, `too_late` for a closed run, `unsigned`,
                `bad_signature` or `not_entitled` where somebody has paused it who may do more, `unknown_update`, or
                that of the message.
            SettingsError: Nothing says who resumes it, or the key cannot be read.
        """
        answer = await pausing.resume(
            self._threads, self.id, by=self._person(by), reason=reason, message=say, private=self._private(key)
        )
        return self._counted(answer, f"resumption of thread {self.id!r}")

    async def wake(
        self,
        event: str = "",
        *,
        data: dict[str, Any] | None = None,
        id: str = "",
        call: int | None = None,
        by: str | None = None,
        reason: str = "",
    ) -> UpdateResult:
        """Send the run an event, for an agent that waits for it; without one, wake the agent now.

        Anybody who reaches Temporal can do this: an event is a claim, which lets nothing run.

        Args:
            event: The event's name; empty to end all waits early.
            data: The event's data: JSON, of at most 16 KB.
            id: Your id of the event: another one of the same id is refused. Empty for a new one.
            call: The number of the one call that it is for; None for all that wait.
            by: Who sends it; None for the client's `by`.
            reason: Why; the LLM reads it.

        Returns:
            `delivered` to a call; `buffered` until a call waits for it; or `sent` where no worker has answered:
            Temporal keeps it for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `duplicate`, `not_waiting`, `wrong_event`, `too_many`,
                `too_late` for a closed run, `malformed`, or `unknown_update` for a run that a worker before 0.2.0
                began.
            SettingsError: Nothing says who sends it.
        """
        given: dict[str, Any] = {"event": event, "id": id, "data": data, "call": call, "reason": reason}
        answer = await waking.wake(self._threads, self.id, by=self._person(by), **given)
        return self._counted(answer, f"{f'event {event}' if event else 'wake'} of thread {self.id!r}")

    async def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,
        say: Content | None = None,
        edit_message: Content | None = None,
        agent: str | None = None,
        llm: str = "",
        policy: Policy | None = None,
        workspace: str | Path | None = None,
        by: str | None = None,
        by_proven: bool = False,
    ) -> "Thread":
        """Fork the thread: a new one that begins with the same events, byte for byte. This one does not change.

        Effects of the fork ask a person first until an approver lifts that: `lift(0)` on the fork.

        Args:
            at: The position of the last event that the fork has; None for the last.
            id: The fork's id: the same fork again returns the one that there is. None for a new id.
            say: A message that the fork begins with; None for none.
            edit_message: A message in place of the last one of a person up to `at`; None for none.
            agent: Another agent of the catalog, with its LLM and policy; None for the thread's.
            llm: The LLM of its agents, at the worker's endpoint; empty for their own.
            policy: A policy that judges the fork's calls beside its agent's: the strictest verdict counts, and the
                agent's own policy says who decides. None for no other.
            workspace: A folder on the worker's machine; None for one of the fork's own.
            by: Who forks it; None for the client's `by`.
            by_proven: This program has authenticated that person; as with `Client.start`.

        Raises:
            PositionInvalid: There is no such event, or no message that could be edited.
            ThreadExists: There is another thread of that id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The message cannot be sent, or there are two.
            FleetKeyMissing: A fork needs the fleet key.
            EventsMissing: The thread's events can no longer be read.
        """
        done = await forks.fork(
            self._threads,
            self.id,
            at=at,
            id=id,
            say=say,
            edit=edit_message,
            agent=agent,
            llm=llm,
            policies=() if policy is None else (policy,),
            workspace=None if workspace is None else str(workspace),
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
        )
        return self._beside(done.thread)

    async def restart(
        self,
        *,
        id: str | None = None,
        task: Content | None = None,
        agent: str | None = None,
        workspace: str | Path | None = None,
        by: str | None = None,
        by_proven: bool = False,
    ) -> "Thread":
        """Start the thread's task again in a new thread, with a clean slate. This one keeps its record.

        Args:
            id: The new thread's id; None for a new one.
            task: Another task; None for the same.
            agent: Another agent; None for the same.
            workspace: A folder on the worker's machine; None for one of the new thread's own.
            by: Who gives the task; None for the client's `by`, or else the same person, as a claim.
            by_proven: This program has authenticated that person; as with `Client.start`.

        Raises:
            ThreadExists: There is a thread of that id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The task is empty or too long.
            EventsMissing: The thread's first events can no longer be read.
        """
        options = StartOptions(
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
        )
        return self._beside((await restart(self._threads, self.id, options, id=id, task=task)).thread)

    async def cancel(self, reason: str = "") -> UpdateResult:
        """Ask the run to stop. It stops its running tools, waits for them, and ends as `cancelled`.

        Args:
            reason: Why; it is in Temporal's history.

        Raises:
            Refused: The run is closed.
        """
        return await decisions.cancel(self._threads, self.id, reason=reason)

    def _person(self, by: str | None) -> str:
        if name := named(self._by if by is None else by):
            return name
        raise SettingsError("say who decides: pass `by`, to this method or to `Client.connect`, or set HOLDFAST_BY")

    def _private(self, key: Path | str | None) -> str | None:
        """The private key to sign with; None to sign nothing."""
        path = Path(key) if key else self._key
        return read_key(path) if path else None

    @staticmethod
    def _counted(answer: AnswerT, what: str) -> AnswerT:
        if not answer.counts:
            raise NotAccepted(
                f"{what}: {answer.outcome.replace('_', ' ')}: {answer.explanation}", outcome=answer.outcome
            )
        return answer


def named(given: str) -> str:
    """Return the one spelling of a person's name.

    Raises:
        SettingsError: It could be mistaken for another name.
    """
    try:
        return person_name(given)
    except ValueError as error:
        raise SettingsError(str(error)) from None
