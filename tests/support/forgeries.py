"""Forgeries of a closed thread by the owner of the database, and of the files beside it.

The forger knows the code, and recomputes every chain of digests. `FORGERIES` is the list; the table in
`docs/explanation/security.md` has the same rows and verdicts.
"""

import asyncio
import io
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from psycopg_pool import AsyncConnectionPool

from holdfast import Policy, allow
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.signatures import SigningKey, encode_key, sign
from holdfast.core.authority.statements import Decision
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log import events as ev
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.node_seals import make_seal, read_seal
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.run.contracts.signed_results import node_id, sign_result
from holdfast.core.run.inputs.losses import LostLog, lost_after
from holdfast.core.stores import aside_id
from holdfast.core.tools.effects import effect_key
from holdfast.storage.blocks import Block, _content
from holdfast.storage.threads import PostgresThreads

MALLORY = encode_key(bytes([66]) * 32)
"""The forger's own key."""
CHANGED = "999"

Log = list[AgentEvent]

_OF_THREAD = "thread = (SELECT id FROM holdfast.threads WHERE thread = %s)"
_PARTS = "digest IN (SELECT digest FROM holdfast.artifact_threads WHERE " + _OF_THREAD + ")"
_TABLES = {"artifact_parts": _PARTS, "effects": "thread = %s", "events": _OF_THREAD}


@dataclass
class Stored:
    """What is stored about a thread, as it was at one time."""

    log: Log
    rows: dict[str, bytes]
    """The rows of each table, in PostgreSQL's binary form."""
    anchors: Path
    """A copy of the folder of anchors."""


@dataclass
class Forger:
    """The owner of the database, and of the files that are not keys."""

    pool: AsyncConnectionPool
    thread: str
    other: str
    """Another closed thread, of the same agent."""
    anchors: Path
    node: str
    """The public key of the node that made the calls."""
    key: str
    """Its private key, for the one forgery that has it."""
    namespace: str
    log: Log = field(default_factory=list)
    """The honest log."""
    earlier: Stored | None = None
    """What was stored at the end of the thread's first run."""

    async def write(self, events: Sequence[AgentEvent], *, thread: str = "") -> None:
        """Replace a thread's record by these events, renumbered, in a correct chain of digests."""
        log, positions = EventLog(), {event.position: index for index, event in enumerate(events)}
        for index, event in enumerate(events):
            changes: dict[str, Any] = {"position": index, "digest": ""}
            if isinstance(event, ev.MessageTaken):
                changes["message"] = positions.get(event.message, event.message)
            log.append(event.model_copy(update=changes), at=event.at)
        await self.sql(f"DELETE FROM holdfast.events WHERE {_OF_THREAD}", thread or self.thread)
        await PostgresThreads(self.pool).append(thread or self.thread, 0, [event_line(each) for each in log.events])

    async def sql(self, statement: str, *values: Any) -> None:
        """Execute SQL."""
        async with self.pool.connection() as connection:
            await connection.execute(statement, list(values))

    async def blocks(self) -> list[Block]:
        """Return the blocks of the record, as they are stored."""
        async with self.pool.connection() as connection:
            query = f"SELECT position, stop, size, at, body FROM holdfast.events WHERE {_OF_THREAD} ORDER BY position"
            return [Block(*row) for row in await (await connection.execute(query, [self.thread])).fetchall()]

    async def store(self, copy: Path) -> Stored:
        """Copy what is stored about the thread, with the anchors into the folder `copy`."""
        rows = {}
        async with self.pool.connection() as connection:
            for table, where in _TABLES.items():
                content = io.BytesIO()
                query = f"COPY (SELECT * FROM holdfast.{table} WHERE {where}) TO STDOUT (FORMAT binary)"
                async with connection.cursor().copy(query, [self.thread]) as out:
                    async for part in out:
                        content.write(part)
                rows[table] = content.getvalue()
        await asyncio.to_thread(shutil.copytree, self.anchors, copy)
        return Stored(self.log, rows, copy)

    async def restore(self, stored: Stored, *, tables: Sequence[str] = tuple(_TABLES), anchors: bool = True) -> None:
        """Bring back what was stored."""
        async with self.pool.connection() as connection:
            for table in tables:
                await connection.execute(f"DELETE FROM holdfast.{table} WHERE {_TABLES[table]}", [self.thread])
                async with connection.cursor().copy(f"COPY holdfast.{table} FROM STDIN (FORMAT binary)") as into:
                    await into.write(stored.rows[table])
        if anchors:
            await asyncio.to_thread(shutil.rmtree, self.anchors)
            await asyncio.to_thread(shutil.copytree, stored.anchors, self.anchors)

    def one(self, kind: Any, *, last: bool = False) -> Any:
        """Return the first event of a kind, or the last one."""
        found = [event for event in self.log if isinstance(event, kind)]
        return found[-1 if last else 0]

    @property
    def paid(self) -> ev.ToolCallFinished:
        """The result of the payment, which is call 2."""
        return next(e for e in self.log if isinstance(e, ev.ToolCallFinished) and e.number == 2)

    def changed(self, event: AgentEvent, **fields: Any) -> Log:
        """Return the log with one event changed."""
        return [each.model_copy(update=fields) if each is event else each for each in self.log]

    def without(self, *events: AgentEvent) -> Log:
        """Return the log without these events."""
        return [each for each in self.log if not any(each is event for event in events)]

    def up_to(self, event: AgentEvent) -> Log:
        """Return the log that ends before an event."""
        return self.log[: event.position]


Forge = Callable[[Forger], Awaitable[None]]


def unsigned(events: Sequence[AgentEvent]) -> Log:
    """Remove the signatures of results: whoever changes something before them cannot make new ones."""
    return [each.model_copy(update={"signed": ""}) if getattr(each, "signed", "") else each for each in events]


def log(change: Callable[[Forger], Sequence[AgentEvent]], *, signed: bool = False) -> Forge:
    """Return the forgery that replaces the record by another log; `signed` keeps the signatures of results."""

    async def forge(forger: Forger) -> None:
        await forger.write(change(forger) if signed else unsigned(change(forger)))

    return forge


def sql(statement: str) -> Forge:
    """Return the forgery by one statement, whose only value is the thread."""

    async def forge(forger: Forger) -> None:
        await forger.sql(statement, forger.thread)

    return forge


# The content of events.


def another_answer(forger: Forger) -> Log:
    """Change what the LLM said last, and the result of the run with it."""
    reply, text = forger.one(ev.LLMReplied, last=True), "Paid 999 to Mallory."
    changed = forger.changed(reply, message=AssistantMessage(content=text))
    last = changed[-1].model_copy(update={"result": text})
    return [*changed[:-1], last]


def another_sum(forger: Forger) -> Log:
    """Change the arguments of the payment everywhere: in the reply, the call, the request, and the effect key."""
    text, chain = '{"cents":999}', forger.one(ev.RunStarted).first_run_id
    digest = ToolCall(id="", name="pay", arguments=text).digest
    key = effect_key(thread=forger.thread, first_run_id=chain, number=2, call_digest=digest)

    def altered(event: Any) -> Any:
        match event:
            case ev.LLMReplied(message=message) if (
                message and message.tool_calls and message.tool_calls[0].name == "pay"
            ):
                (written,) = message.tool_calls
                paid = written.model_copy(update={"arguments": text})
                return event.model_copy(update={"message": message.model_copy(update={"content": (paid,)})})
            case ev.ToolCallRequested(call=ToolCall(name="pay") as paid):
                return event.model_copy(update={"call": paid.model_copy(update={"arguments": text})})
            case ev.ApprovalRequested(request=request) if request.tool == "pay":
                request = request.model_copy(update={"arguments": text, "effect_key": key})
                return event.model_copy(update={"request": request.model_copy(update={"digest": request.seen.digest})})
            case ev.ToolCallStarted(number=2):
                return event.model_copy(update={"key": key})
            case ev.ToolCallFinished(number=2):
                return event.model_copy(update={"content": "paid 999", "signed": ""})
            case _:
                return event

    return [altered(event) for event in forger.log]


def another_agent(forger: Forger) -> Log:
    """Rename the agent in its specification, with the digests."""
    loaded = forger.one(ev.AgentLoaded)
    spec = respecified(loaded.spec, name="auditor")
    return forger.changed(loaded, spec=spec, spec_hash=spec.hash)


def respecified(spec: AgentSpec, **fields: Any) -> AgentSpec:
    """Return a specification with other fields, and so another digest."""
    return AgentSpec.model_validate({**{name: getattr(spec, name) for name in AgentSpec.model_fields}, **fields})


def another_policy(forger: Forger) -> Log:
    """Allow the payment in the recorded policy, with its digests, and remove the approval."""
    loaded = forger.one(ev.AgentLoaded)
    spec = respecified(loaded.spec, policy=Policy(rules=(allow("*"),)))
    verdict = next(event for event in forger.log if isinstance(event, ev.VerdictGiven) and event.number == 2)

    def altered(event: Any) -> Any:
        if isinstance(event, ev.AgentLoaded):
            return event.model_copy(update={"spec": spec, "spec_hash": spec.hash, "policy_hash": spec.policy.hash})
        if event is verdict:
            return verdict.model_copy(update={"verdict": "allow", "rule": "allow *", "requirements": ()})
        return event.model_copy(update={"request": ""}) if isinstance(event, ev.ToolCallStarted) else event

    return [altered(event) for event in forger.without(*approval(forger))]


def approval(forger: Forger) -> list[AgentEvent]:
    """Return the request for the payment, and its approval."""
    return [forger.one(ev.ApprovalRequested), forger.one(ev.DecisionReceived)]


def approved_by_mallory(forger: Forger) -> Log:
    """Sign the approval again, with another key."""
    decided = forger.one(ev.DecisionReceived)
    digest = forger.one(ev.ApprovalRequested).request.digest
    said = Decision(decision="approve", request=decided.request, digest=digest, by=decided.by)
    signature = sign(MALLORY, said.signed_bytes(forger.thread))
    return forger.changed(decided, signature=signature, key=SigningKey(MALLORY).public)


def approval_for_the_denied(forger: Forger) -> Log:
    """Put the payment's approval in the place of the denial of the other call."""
    denied = forger.one(ev.DecisionReceived, last=True)
    moved = forger.one(ev.DecisionReceived).model_copy(update={"request": denied.request, "at": denied.at})
    return [moved if e is denied else e for e in forger.log]


def denial(forger: Forger) -> list[AgentEvent]:
    """Return the denied call's decision and result."""
    result = next(e for e in forger.log if isinstance(e, ev.ToolCallFinished) and e.number == 3)
    return [forger.one(ev.DecisionReceived, last=True), result]


def exchanged_signatures(forger: Forger) -> Log:
    """Exchange the signatures of two results."""
    first, second = forger.one(ev.ToolCallFinished), forger.paid
    changed = {id(first): second.signed, id(second): first.signed}
    return [e.model_copy(update={"signed": changed[id(e)]}) if id(e) in changed else e for e in forger.log]


def own_signature(forger: Forger, *, claims: str) -> Log:
    """Change a result, and sign it with the forger's key, under this id."""
    signed = sign_result(SigningKey(MALLORY), {"result": "paid 999"}, attempt=1)
    return forger.changed(forger.paid, content="paid 999", signed=claims + signed[len(claims) :])


def reordered(forger: Forger) -> Log:
    """Exchange two messages of the log: the second run's task comes first."""
    first, second = (event for event in forger.log if isinstance(event, ev.UserMessageReceived))
    swapped = {id(first): second, id(second): first}
    return [swapped.get(id(event), event) for event in forger.log]


def lost_gap(forger: Forger) -> Log:
    """Remove the second run, and say that an older backup was restored."""
    kept = forger.up_to(forger.one(ev.RunStarted, last=True))
    return [*kept, lost_after(kept[-1], LostLog(events=len(forger.log), head=forger.log[-1].digest), at=kept[-1].at)]


# The database beside the events.


async def spliced(forger: Forger) -> None:
    """Continue the beginning of the thread with the end of another one."""
    store = PostgresThreads(forger.pool)
    other = run_events(forger.other, read_lines(forger.other, 0, await store.read(forger.other)))
    begin = forger.up_to(forger.one(ev.LLMReplied))
    replied = next(event.position for event in other if isinstance(event, ev.LLMReplied))
    await forger.write(unsigned([*begin, *other[replied:]]))


async def exchanged_thread(forger: Forger) -> None:
    """Store another thread's blocks under this thread's id."""
    await forger.sql(f"DELETE FROM holdfast.events WHERE {_OF_THREAD}", forger.thread)
    columns = "position, stop, size, at, body, log_rows, carried"
    await forger.sql(
        f"INSERT INTO holdfast.events (thread, {columns}) SELECT (SELECT id FROM holdfast.threads WHERE thread = %s), "
        f"{columns} FROM holdfast.events WHERE {_OF_THREAD}",
        forger.thread,
        forger.other,
    )


async def altered_block(forger: Forger) -> None:
    """Change some bytes inside a block, without its digests."""
    for block in await forger.blocks():
        form, content = _content(block)
        body = bytes([form & ~1]) + content.replace(b"paid 100", b"paid 999")
        await forger.sql(
            f"UPDATE holdfast.events SET body = %s WHERE position = %s AND {_OF_THREAD}",
            body,
            block.position,
            forger.thread,
        )


async def removed_block(forger: Forger) -> None:
    """Delete a block in the middle."""
    blocks = await forger.blocks()
    await forger.sql(
        f"DELETE FROM holdfast.events WHERE position = %s AND {_OF_THREAD}",
        blocks[len(blocks) // 2].position,
        forger.thread,
    )


async def pretend_reset(forger: Forger) -> None:
    """Keep the honest log as if a reset had abandoned it, and write another one."""
    await forger.write(forger.log, thread=aside_id(forger.thread, 1))
    await forger.write(unsigned(another_answer(forger)))


async def change_outcome(forger: Forger) -> None:
    """Change the outcome in the ledger, and the result in the log accordingly."""
    await forger.sql(
        "UPDATE holdfast.effects SET outcome = replace(outcome, 'paid 100', 'paid 999') WHERE thread = %s",
        forger.thread,
    )
    await forger.write(unsigned(forger.changed(forger.paid, content="paid 999")))


async def without_payment(forger: Forger) -> None:
    """Cut the log off before the payment, and delete its effect."""
    replies: list[Any] = [event for event in forger.log if isinstance(event, ev.LLMReplied) and event.message]
    paying = next(each for each in replies if any(asked.name == "pay" for asked in each.message.tool_calls))
    await forger.write(unsigned(forger.up_to(paying)))
    await forger.sql("DELETE FROM holdfast.effects WHERE thread = %s", forger.thread)


async def older_rows(forger: Forger) -> None:
    """Restore the rows of an older backup: those at the end of the first run."""
    assert forger.earlier
    await forger.restore(forger.earlier, anchors=False)


_DUPLICATE = (
    "INSERT INTO holdfast.effects (key, epoch, thread, tool, started_at, finished_at, outcome, number, first_run_id, "
    "call_digest, call, mac) SELECT key, 7, thread, tool, started_at, finished_at, outcome, number, first_run_id, "
    "call_digest, call, mac FROM holdfast.effects WHERE thread = %s AND epoch = 0"
)


# The anchors, together with the record.


def and_then(forge: Forge, then: Forge) -> Forge:
    """Return the forgery that makes two."""

    async def both(forger: Forger) -> None:
        await forge(forger)
        await then(forger)

    return both


async def empty_anchors(forger: Forger) -> None:
    """Replace the folder of the anchors by an empty one."""
    await asyncio.to_thread(shutil.rmtree, forger.anchors)
    await asyncio.to_thread(forger.anchors.mkdir)


async def seal(forger: Forger, private: str, *, gone: Literal["", "reset", "restored"] = "") -> None:
    """Seal the record as it is now; with `gone`, say that the honest log was removed from it."""
    lines = await PostgresThreads(forger.pool).read(forger.thread)
    stored = forger.log if gone else read_lines(forger.thread, 0, lines)
    made = make_seal(
        private,
        namespace=forger.namespace,
        thread=forger.thread,
        events=len(stored),
        head=stored[-1].digest,
        at=forger.log[-1].at,
        gone=gone,
    )
    await FolderAnchor(forger.anchors).put(made)


async def seal_again(forger: Forger) -> None:
    """Seal the forged record with the node's own key."""
    await seal(forger, forger.key)


async def strangers_anchors(forger: Forger) -> None:
    """Replace the anchors by seals of the forged record, signed with another key."""
    await empty_anchors(forger)
    await seal(forger, MALLORY)


async def claimed_anchors(forger: Forger) -> None:
    """Write the forged record's digests into the seals, under the node's name, without its signature."""
    lines = await PostgresThreads(forger.pool).read(forger.thread)
    stored = read_lines(forger.thread, 0, lines)

    def rewrite() -> None:
        for file in forger.anchors.glob("*/*.jsonl"):
            seals = [found for line in file.read_bytes().splitlines() if (found := read_seal(line))]
            changed = [each.model_copy(update={"head": stored[each.events - 1].digest}) for each in seals]
            file.write_bytes(b"".join(each.line() + b"\n" for each in changed))

    await asyncio.to_thread(rewrite)


async def copied_anchors(forger: Forger) -> None:
    """Put the seals of another thread in the place of this one's."""

    def copy() -> None:
        other = b"\n".join(AnchoredLines([forger.anchors], forger.other)) + b"\n"
        for file in forger.anchors.glob("*/*.jsonl"):
            seals = [read_seal(line) for line in file.read_bytes().splitlines()]
            if any(each and each.thread == forger.thread for each in seals):
                file.write_bytes(other)

    await asyncio.to_thread(copy)


async def earlier_anchors(forger: Forger) -> None:
    """Bring back the anchors of the end of the first run."""
    assert forger.earlier
    await forger.restore(forger.earlier, tables=())


async def everything_earlier(forger: Forger) -> None:
    """Bring back the rows and the anchors of the end of the first run."""
    assert forger.earlier
    await forger.restore(forger.earlier)


Verdict = Literal["altered", "not_proven", "proven"]


class Forgery(NamedTuple):
    """A forgery, and the verdicts about it."""

    name: str
    forge: Forge
    history: Verdict
    """While Temporal has the history, without anchors."""
    anchored: Verdict
    """Without the history, with the anchors of the embedded servers."""
    alone: Verdict
    """With neither."""


def _of(name: str, forge: Forge, *verdicts: Verdict) -> Forgery:
    history, anchored, alone = verdicts or ("altered", "altered", "not_proven")
    return Forgery(name, forge, history, anchored, alone)


_FOUND: tuple[Verdict, Verdict, Verdict] = ("altered", "altered", "altered")
"""The database contradicts itself, or a signature: no witness is needed."""
_HIDDEN: tuple[Verdict, Verdict, Verdict] = ("altered", "not_proven", "not_proven")
"""Once Temporal has deleted the history, nothing is left that the forger did not write."""


def _task(forger: Forger) -> Log:
    return forger.changed(forger.one(ev.UserMessageReceived), content="pay Mallory")


_REWRITTEN = log(_task)
_LEDGER = "UPDATE holdfast.effects SET {} WHERE thread = %s"
_OUTCOME = "outcome = replace(outcome, 'paid 100', 'paid 999')"
_BYTES = f"UPDATE holdfast.artifact_parts SET content = overlay(content PLACING 'X'::bytea FROM 5) WHERE {_PARTS}"

FORGERIES = (
    # The content of events, in a recomputed chain.
    _of("another task", _REWRITTEN),
    _of("another task, with the signatures of results kept", log(_task, signed=True), *_FOUND),
    _of("another sender of the task", log(lambda f: f.changed(f.one(ev.UserMessageReceived), by="mallory"))),
    _of("another answer of the LLM", log(another_answer)),
    _of("another cost of an LLM call", log(lambda f: f.changed(f.one(ev.LLMReplied), cost=1))),
    _of("another result of a tool", log(lambda f: f.changed(f.paid, content="paid 999")), *_FOUND),
    _of("other arguments of a call, everywhere", log(another_sum), *_FOUND),
    _of("another trust level of the task", log(lambda f: f.changed(f.one(ev.RunStarted), trust="web"))),
    _of("another typed context", log(lambda f: f.changed(f.one(ev.RunStarted), context={"tenant": "mallory"}))),
    _of("another name of the agent", log(another_agent), *_FOUND),
    _of(
        "other times", log(lambda f: [e.model_copy(update={"at": e.at - timedelta(days=365)}) for e in f.log]), *_FOUND
    ),
    # Decisions.
    _of("a policy that allows the call, and no approval", log(another_policy), *_FOUND),
    _of("no approval", log(lambda f: f.without(*approval(f))), *_FOUND),
    _of("another person as the approver", log(lambda f: f.changed(f.one(ev.DecisionReceived), by="bob")), *_FOUND),
    _of("an approval signed with another key", log(approved_by_mallory), *_FOUND),
    _of("the approval of another call, for a denied one", log(approval_for_the_denied), *_FOUND),
    _of("no denial", log(lambda f: f.without(*denial(f))), *_FOUND),
    _of("no revocation of a key", log(lambda f: f.without(f.one(ev.KeyRevoked)))),
    # Signatures of results.
    _of("no signatures of results", log(lambda f: f.log)),
    _of("signatures exchanged between results", log(exchanged_signatures, signed=True), *_FOUND),
    _of(
        "a result signed by a stranger",
        log(lambda f: own_signature(f, claims=node_id(SigningKey(MALLORY).public)), signed=True),
        *_FOUND,
    ),
    _of(
        "a result signed in the node's name",
        log(lambda f: own_signature(f, claims=node_id(f.node)), signed=True),
        *_FOUND,
    ),
    # Order and length.
    _of("events in another order", log(reordered), *_FOUND),
    _of("the last run cut off", log(lambda f: f.up_to(f.one(ev.RunStarted, last=True)))),
    _of("the last run cut off, as if a backup had lost it", log(lost_gap)),
    _of("the rows of an older backup", older_rows),
    _of("all but the beginning cut off", log(lambda f: f.log[:3]), *_FOUND),
    _of("cut off before the payment, with its effect", without_payment),
    _of("a reset that never happened", pretend_reset),
    _of("the end of another thread", spliced, *_FOUND),
    _of("another thread under this id", exchanged_thread, *_FOUND),
    _of("some bytes inside a block", altered_block, *_FOUND),
    _of("a block deleted", removed_block, *_FOUND),
    # Ledger and artifacts.
    _of("an outcome, in the ledger and in the log", change_outcome, *_FOUND),
    _of("an outcome, in the ledger alone", sql(_LEDGER.format(_OUTCOME)), *_FOUND),
    _of("an outcome without its MAC in the ledger", sql(_LEDGER.format("mac = NULL")), *_FOUND),
    _of("another tool in the ledger", sql(_LEDGER.format("tool = 'dump'")), *_FOUND),
    _of("another call in the ledger", sql(_LEDGER.format("call = 'pay(cents=999)'")), *_FOUND),
    _of("an effect doubled in the ledger", sql(_DUPLICATE), *_FOUND),
    _of("an effect deleted from the ledger", sql("DELETE FROM holdfast.effects WHERE thread = %s"), *_FOUND),
    _of("an artifact's bytes", sql(_BYTES), *_FOUND),
    _of("an artifact deleted", sql(f"DELETE FROM holdfast.artifact_parts WHERE {_PARTS}"), *_FOUND),
    # The record, and the anchors without the node's key.
    _of("another task, and anchors emptied", and_then(_REWRITTEN, empty_anchors), *_HIDDEN),
    _of("another task, and anchors of a stranger's key", and_then(_REWRITTEN, strangers_anchors), *_HIDDEN),
    _of("another task, and its digests in the anchors", and_then(_REWRITTEN, claimed_anchors), *_HIDDEN),
    _of("another task, and the anchors of another thread", and_then(_REWRITTEN, copied_anchors), *_HIDDEN),
    _of("another task, and older anchors", and_then(_REWRITTEN, earlier_anchors)),
    _of(
        "another task, and a stranger's word for a reset",
        and_then(_REWRITTEN, partial(seal, private=MALLORY, gone="reset")),
    ),
    _of("another task, with new checkpoints signed by the node's own key", and_then(_REWRITTEN, seal_again)),
)

LIMITS = (
    _of("rows and anchors of an earlier end", everything_earlier, "altered", "proven", "not_proven"),
    _of(
        "another task, and new anchors by the node's own key",
        and_then(_REWRITTEN, and_then(empty_anchors, seal_again)),
        "altered",
        "proven",
        "not_proven",
    ),
)
"""What the owner of the whole state folder can do, who has the node's key or all of its seals."""
