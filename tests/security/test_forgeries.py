"""Twenty forgeries of a thread whose history Temporal has deleted, by the database's owner, tried on real servers.

The forger knows the code, and recomputes every chain of digests. With an anchor outside the database, as the embedded
servers have it by default, each is `altered`; without any anchor, none is ever `proven`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.evidence.anchors import Anchors
from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.core.authority.signatures import SigningKey, encode_key
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log import events as ev
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.signed_results import node_id, sign_result
from holdfast.core.stores import aside_id
from holdfast.core.tools.effects import effect_key
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.security.test_anchors import KEY, NODE, Auditor, auditor, sealer_to
from tests.support.people import answer, request_of
from tests.support.rig import StartRig

__all__ = ["auditor"]

MALLORY = SigningKey(encode_key(bytes([66]) * 32))
SCRIPT = steps([call("dump"), call("pay", cents=100), say("Paid 100.")])

Log = list[AgentEvent]


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return "0123456789" * 5_000


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay.

    Args:
        cents: How much.
    """
    return f"paid {cents}"


CATALOG = Catalog(
    agents=[
        Agent(name="clerk", instructions="Pay.", policy=Policy(rules=(allow("dump"), ask("pay"))), tools=[dump, pay])
    ]
)


@dataclass
class Forger:
    """The owner of the database."""

    auditor: Auditor
    thread: str
    log: Log

    async def write(self, events: Sequence[AgentEvent]) -> None:
        """Replace the record by these events, renumbered, in a correct chain."""
        renumbered = [event.model_copy(update={"position": index}) for index, event in enumerate(events)]
        await self.auditor.write(self.thread, renumbered)

    async def sql(self, statement: str, *values: Any) -> None:
        """Execute SQL."""
        async with self.auditor.pool.connection() as connection:
            await connection.execute(statement, list(values))

    def one(self, kind: Any, *, last: bool = False) -> Any:
        """Return the first event of a kind, or the last one."""
        found = [event for event in self.log if isinstance(event, kind)]
        return found[-1 if last else 0]

    def with_changed(self, event: AgentEvent, **fields: Any) -> Log:
        """Return the log with one event changed."""
        return [each.model_copy(update=fields) if each is event else each for each in self.log]

    def without(self, *kinds: Any) -> Log:
        """Return the log without events of these kinds."""
        return [event for event in self.log if not isinstance(event, kinds)]


Forge = Callable[[Forger], Awaitable[None]]


def rewriting(change: Callable[[Forger], Sequence[AgentEvent]]) -> Forge:
    """Return the forgery that replaces the record by another log."""

    async def forge(forger: Forger) -> None:
        await forger.write(change(forger))

    return forge


def another_answer(forger: Forger) -> Log:
    """Change what the LLM said last, and the result of the run with it."""
    reply, text = forger.one(ev.LLMReplied, last=True), "Paid 999 to Mallory."
    changed = forger.with_changed(reply, message=AssistantMessage(content=text))
    return [e.model_copy(update={"result": text}) if isinstance(e, ev.RunFinished) else e for e in changed]


def another_sum(forger: Forger) -> Log:
    """Change the arguments of the call everywhere: in the reply, the call, the request, and the effect key."""
    text, chain = '{"cents":999}', forger.one(ev.RunStarted).first_run_id

    def altered(event: AgentEvent) -> AgentEvent:
        match event:
            case ev.LLMReplied(message=message) if (
                message and message.tool_calls and message.tool_calls[0].name == "pay"
            ):
                (written,) = message.tool_calls
                paid = written.model_copy(update={"arguments": text})
                return event.model_copy(update={"message": message.model_copy(update={"content": (paid,)})})
            case ev.ToolCallRequested(call=ToolCall(name="pay") as paid):
                return event.model_copy(update={"call": paid.model_copy(update={"arguments": text})})
            case ev.ApprovalRequested(request=request):
                digest = ToolCall(id="", name="pay", arguments=text).digest
                key = effect_key(thread=forger.thread, first_run_id=chain, number=2, call_digest=digest)
                request = request.model_copy(update={"arguments": text, "effect_key": key})
                return event.model_copy(update={"request": request.model_copy(update={"digest": request.seen.digest})})
            case ev.ToolCallStarted(number=2):
                digest = ToolCall(id="", name="pay", arguments=text).digest
                key = effect_key(thread=forger.thread, first_run_id=chain, number=2, call_digest=digest)
                return event.model_copy(update={"key": key})
            case ev.ToolCallFinished(number=2):
                return event.model_copy(update={"content": "paid 999", "signed": ""})
            case _:
                return event

    return [altered(event) for event in forger.log]


def another_policy(forger: Forger) -> Log:
    """Allow the payment in the recorded policy, with its digests, and remove the approval."""
    loaded = forger.one(ev.AgentLoaded)
    spec = loaded.spec.model_copy(update={"policy": Policy(rules=(allow("*"),))})
    log = [e for e in forger.log if not isinstance(e, ev.ApprovalRequested | ev.DecisionReceived)]
    verdict = [e for e in log if isinstance(e, ev.VerdictGiven)][-1]

    def altered(event: AgentEvent) -> AgentEvent:
        if event is loaded:
            return loaded.model_copy(update={"spec": spec, "spec_hash": spec.hash, "policy_hash": spec.policy.hash})
        if event is verdict:
            return verdict.model_copy(update={"verdict": "allow", "rule": "allow *"})
        return event.model_copy(update={"request": ""}) if isinstance(event, ev.ToolCallStarted) else event

    return [altered(event) for event in log]


def another_approver(forger: Forger) -> Log:
    """Name somebody else as the person who approved."""
    return forger.with_changed(forger.one(ev.DecisionReceived), by="bob")


def exchanged_signatures(forger: Forger) -> Log:
    """Exchange the signatures of two results."""
    first, second = (event for event in forger.log if isinstance(event, ev.ToolCallFinished))
    changed = {id(first): second.signed, id(second): first.signed}
    return [e.model_copy(update={"signed": changed[id(e)]}) if id(e) in changed else e for e in forger.log]


def own_signature(forger: Forger, *, claims: str) -> Log:
    """Change a result, and sign it with the forger's key, under this id."""
    result = forger.one(ev.ToolCallFinished, last=True)
    signed = sign_result(MALLORY, {"result": "paid 999"}, attempt=1)
    return forger.with_changed(result, content="paid 999", signed=claims + signed[len(claims) :])


async def remove(forger: Forger) -> None:
    """Remove the whole record."""
    await forger.auditor.remove(forger.thread)


async def pretend_reset(forger: Forger) -> None:
    """Keep the honest log as if a reset had abandoned it, and write another one."""
    aside = Forger(forger.auditor, aside_id(forger.thread, 1), forger.log)
    await forger.auditor.write(aside.thread, forger.log)
    await forger.write(another_answer(forger))


async def change_outcome(forger: Forger) -> None:
    """Change the outcome in the ledger, and the result in the log accordingly."""
    await forger.sql(
        "UPDATE holdfast.effects SET outcome = replace(outcome::text, 'paid 100', 'paid 999') WHERE thread = %s",
        forger.thread,
    )
    await forger.write(forger.with_changed(forger.one(ev.ToolCallFinished, last=True), content="paid 999", signed=""))


FORGERIES: dict[str, Forge] = {
    "another task": rewriting(lambda f: f.with_changed(f.one(ev.UserMessageReceived), content="pay Mallory")),
    "another sender": rewriting(lambda f: f.with_changed(f.one(ev.UserMessageReceived), by="mallory")),
    "cut off before the last reply": rewriting(lambda f: f.log[: f.one(ev.LLMReplied, last=True).position]),
    "cut off before the payment": rewriting(lambda f: f.log[: f.one(ev.ToolCallStarted, last=True).position]),
    "only the beginning": rewriting(lambda f: f.log[:3]),
    "removed": remove,
    "another answer": rewriting(another_answer),
    "another result": rewriting(lambda f: f.with_changed(f.one(ev.ToolCallFinished, last=True), content="paid 999")),
    "another result without a signature": rewriting(
        lambda f: f.with_changed(f.one(ev.ToolCallFinished, last=True), content="paid 999", signed="")
    ),
    "no signatures": rewriting(
        lambda f: [e.model_copy(update={"signed": ""}) if getattr(e, "signed", "") else e for e in f.log]
    ),
    "exchanged signatures": rewriting(exchanged_signatures),
    "a result signed by a stranger": rewriting(lambda f: own_signature(f, claims=node_id(MALLORY.public))),
    "a result signed in the node's name": rewriting(lambda f: own_signature(f, claims=node_id(NODE))),
    "another attempt": rewriting(
        lambda f: f.with_changed(
            f.one(ev.ToolCallFinished, last=True), signed=f.one(ev.ToolCallFinished, last=True).signed + "2"
        )
    ),
    "another sum": rewriting(another_sum),
    "another policy": rewriting(another_policy),
    "another approver": rewriting(another_approver),
    "no approval": rewriting(lambda f: f.without(ev.ApprovalRequested, ev.DecisionReceived)),
    "other times": rewriting(lambda f: [e.model_copy(update={"at": e.at - timedelta(days=365)}) for e in f.log]),
    "a reset that never happened": pretend_reset,
    "another outcome in the ledger": change_outcome,
}


async def test_twenty_forgeries_are_altered_with_the_anchor_and_never_proven_without(
    rig: StartRig, auditor: Auditor
) -> None:
    """No rewritten, cut, removed or newly signed record passes, and the honest one does, before and after them."""
    key = SigningKey(KEY)
    async with (
        sealer_to(FolderAnchor(auditor.folder)) as sealer,
        rig(CATALOG, SCRIPT, seal=sealer.seal, node_key=key) as r,
    ):
        run = await r.start(by="dana")
        opened = await request_of(run)
        approval = {"request": opened["request"], "digest": opened["digest"], "decision": "approve", "by": "alice"}
        assert await answer(run, "decide", approval) == "accepted"
        log = await auditor.finished(run)
    forger = Forger(auditor, run.id, log)
    pool = auditor.pool
    evidence = Evidence(partial(effects_of, pool), PostgresThreads(pool).asides, PostgresArtifacts(pool))
    known = {NODE: None}

    async def verified(anchors: Anchors | None) -> Verification:
        return await verify(auditor.threads, run.id, evidence=evidence, anchors=anchors, nodes=known)

    anchors = Anchors([auditor.folder], known)
    honest = await verified(anchors)
    assert (honest.verdict, honest.reason) == ("proven", "")
    assert {each.key for each in honest.calls} == {NODE}
    assert (await verified(None)).verdict == "not_proven"
    async with pool.connection() as connection:
        rows = await (
            await connection.execute("SELECT outcome::text FROM holdfast.effects WHERE thread = %s", [run.id])
        ).fetchall()
    assert len(FORGERIES) >= 20
    for name, forge in FORGERIES.items():
        await forge(forger)
        report = await verified(anchors)
        assert report.verdict == "altered", name
        if name != "removed":
            alone = await verified(None)
            assert alone.verdict != "proven", name
        await forger.write(log)
        await forger.sql("UPDATE holdfast.effects SET outcome = %s WHERE thread = %s", rows[0][0], run.id)
    assert (await verified(anchors)).verdict == "proven"
