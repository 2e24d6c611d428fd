"""The runs and loops whose histories each release records: the agents, the LLM's replies, and people's inputs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio.client import WorkflowFailureError, WorkflowHandle

from holdfast import (
    Agent,
    Approver,
    Budget,
    Cannot,
    Catalog,
    Context,
    ContextUpdate,
    Escalation,
    Hours,
    ImageBlock,
    Limits,
    Memory,
    Policy,
    Preview,
    Template,
    Terms,
    ToolContext,
    allow,
    ask,
    deny,
    later,
    tool,
)
from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import Decision
from holdfast.core.lineage import Lineage
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.loop.state import LoopLimits
from holdfast.core.nodes import Node
from holdfast.core.run.inputs.interventions import UPDATES
from holdfast.core.run.machine.rollover import SIGNAL_LIMIT
from holdfast.core.run.rules.compaction import INSTRUCTION
from holdfast.core.run.rules.refusals import RECORDED
from holdfast.core.run.state.features import FOREIGN_WAITS, FORKS, MOVES, PLACES, TYPED_CONTEXT, UNATTENDED
from holdfast.core.tools.foreign_waits import Asks, QuestionPart, ServerQuestion
from holdfast.testing import (
    Conversation,
    Reply,
    Script,
    call,
    call_verbatim,
    cut_off,
    fail,
    hang,
    say,
    steps,
    together,
)
from holdfast.workspace.memory.tools import memory_tools
from tests.support.rig import Rig, answer_of, events_of, eventually, lose_attempt, reset, status_of, tasks_of

Handle = WorkflowHandle[Any, Any]


@tool(effect="read")
def look(at: str) -> str | list[str | ImageBlock]:
    """Look at something."""
    if at == "a picture":  # too large for the log
        return ["it is this:", ImageBlock(data="AAAA" * 130_000, media_type="image/png")]
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="unsafe")
def wipe() -> str:
    """Wipe everything."""
    raise AssertionError("a denied tool ran")


@tool(effect="read")
def glance() -> str:
    """See how things are."""
    return "as before"


@tool(effect="unsafe", timeout=2, undo=lambda: "taken back")
async def stall() -> str:
    """Never return."""
    await asyncio.sleep(60)
    return "never"


@tool(effect="read")
def fetch(id: int) -> str | Cannot:
    """Fetch an invoice."""
    if id < 10:
        return f"invoice {id}"
    until = timedelta(days=30) if id < 20 else None
    return Cannot(f"invoice {id} is locked", scope="here" if id < 20 else "everywhere", until=until)


@tool(effect="idempotent")
def print_invoice(id: int) -> Cannot:
    """Print an invoice."""
    return Cannot("there is no printer here", scope="node")


NODE = Node(name="home")
"""The node of the worker that records `placed`; its labels change."""


class Account(BaseModel):
    """The context of the teller's runs."""

    number: str
    checked: bool = False


@tool(effect="read", writes=("checked",))
def check_pin(pin: int, account: Context[Account]) -> ContextUpdate:
    """Check the PIN."""
    return ContextUpdate("right", {"checked": True})


@tool(effect="unsafe")
def charge(cents: int, account: Context[Account]) -> str:
    """Charge the account."""
    return f"charged {account.number}"


ONE_MINUTE_A_WEEK = Hours(begin="03:00", end="03:01", days="sun", zone="Europe/Berlin")


def preview_of(cents: int) -> Preview:
    """Return what `transfer` would do."""
    return Preview(f"the balance falls by {cents}", base="1")


@tool(effect="unsafe", preview=preview_of)
def transfer(cents: int) -> str:
    """Transfer money."""
    return f"transferred {cents}"


@tool(effect="unsafe")
def order(tickets: int, context: ToolContext) -> Any:
    """Order tickets, as a foreign server does that asks for a name first."""
    if context.resumed:
        return f"{tickets} for {context.resumed.responses['who']['content']['name']}"
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return Asks(ServerQuestion(server="shop", parts=(QuestionPart(key="who", message="Who is it for?", form=form),)))


TOOLS = (look, glance, pay, wipe, stall, fetch)


def clerk(name: str = "clerk", **limits: Any) -> Agent:
    """Return an agent that asks to pay and may not wipe."""
    policy = Policy(rules=(deny("wipe"), allow("look"), allow("stall"), allow("fetch")))
    bounds = Limits(**{"max_steps": 4, **limits})
    return Agent(name=name, instructions="Work.", tools=TOOLS, policy=policy, limits=bounds)


ALICE = encode_key(bytes(32))
PEOPLE = (Approver(name="alice", roles=("finance",), keys=(public_key(ALICE),)), Approver(name="bob"))


def treasurer() -> Agent:
    """Return an agent that pays after two approvals, and whose wipes are denied at a time-out."""
    hasty = Terms(by=("alice",), escalate=(Escalation(after=0.3, by=("bob",)),), expires_after=2.5)
    rules = (ask("pay", when="args.amount > 5", terms=Terms(quorum=2, remind_every=3)), ask("wipe", terms=hasty))
    return Agent(
        name="treasurer",
        instructions="Work.",
        tools=TOOLS,
        policy=Policy(rules=rules, approvers=PEOPLE),
        verify=("glance",),
        limits=Limits(stale_after=0.5),
    )


def lender() -> Agent:
    """Return an agent whose approvers may delegate their authority."""
    policy = Policy(rules=(ask("pay"), allow()), approvers=PEOPLE)
    return Agent(name="lender", instructions="Work.", tools=TOOLS, policy=policy)


def poller() -> Agent:
    """Return an agent that polls once, and again at the end of its time."""
    return Agent(
        name="poller",
        instructions="Work.",
        tools=("look", "fetch", "wipe"),
        policy=Policy(rules=(deny("wipe"), allow())),
        limits=Limits(poll_seconds=30),
        dormancy=True,
    )


def keeper() -> Agent:
    """Return an agent that is shown its memory, and may do anything."""
    memory = Memory(files=500, standing=300, semantic=True)
    return Agent(name="keeper", instructions="Work.", tools=TOOLS, policy=Policy(rules=(allow(),)), memory=memory)


def archivist() -> Agent:
    """Return an agent that keeps progress.txt, and stores its learnings at the end."""
    memory = Memory(progress=True, learn=True, semantic=True)
    policy = Policy(rules=(allow("look"), allow("update_progress"), allow("remember")))
    return Agent(name="archivist", instructions="Work.", tools=TOOLS, policy=policy, memory=memory)


CATALOG = Catalog(
    agents=[
        clerk(),
        clerk("mover", max_steps=100, history_events=80),
        clerk("folder", max_steps=100, compaction_tokens=1_050),
        treasurer(),
        lender(),
        keeper(),
        Agent(name="sleeper", instructions="Work.", tools=(), policy=Policy(rules=(allow(),)), dormancy=True),
        Agent(name="refiner", instructions="Work.", tools=(), policy=Policy(rules=(allow(),)), refines=True),
        archivist(),
        clerk("looper", max_steps=100, repeats_slowed=3, repeats_warned=3, repeats_asked=4),
        poller(),
        Agent(name="manager", instructions="Delegate.", tools=(), subagents=("clerk",)),
        Agent(
            name="steward",
            instructions="Delegate.",
            tools=(),
            policy=Policy(rules=(allow(),)),
            subagents=("saver",),
            budget=Budget(steps=6),
        ),
        Agent(
            name="reporter", instructions="Report.", tools=("look",), policy=Policy(rules=(allow(),)), result=list[int]
        ),
        Agent(
            name="saver",
            instructions="Work.",
            tools=("look",),
            policy=Policy(rules=(allow(),)),
            budget=Budget(steps=5, tokens=1_000_000),
        ),
        Agent(
            name="teller",
            instructions=Template("Work for {{ context.number }}."),
            tools=("check_pin", "charge"),
            policy=Policy(rules=(allow("check_pin"), allow("charge", when="context.checked"))),
            context=Account,
        ),
        Agent(name="banker", instructions="Work.", tools=("transfer",), policy=Policy(rules=(ask("transfer"),))),
        Agent(
            name="sunday_clerk",
            instructions="Work.",
            tools=("pay",),
            policy=Policy(rules=(later("pay", until=ONE_MINUTE_A_WEEK), allow("pay"))),
        ),
        Agent(name="buyer", instructions="Order.", tools=("order",), policy=Policy(rules=(allow(),))),
        Agent(name="printer", instructions="Print.", tools=("print_invoice",), policy=Policy(rules=(allow(),))),
    ],
    tools=(*TOOLS, check_pin, charge, order, print_invoice, transfer),
)


async def plain(run: Handle, rig: Rig) -> None:
    """Only wait for the end."""
    await run.result()


async def approvals(run: Handle, rig: Rig) -> None:
    """Decide two open requests out of order, by signal and by update, with a duplicate and a denial."""
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "9", "by": "alice"})
    await run.signal("nonsense", {"request": "1"})
    await answer_of(run.execute_update("decide", {"decision": "deny", "request": "2", "by": "bob", "reason": "no"}))
    await run.signal("approve", {"request": "1", "by": "alice", "say": "Once is enough."})
    await run.result()


async def retried(run: Handle, rig: Rig) -> None:
    """Be blocked by the provider, fixed, and retried."""
    await status_of(run, "blocked")
    rig.llm.script = steps([call("look", at="a"), say("done")])
    await run.signal("retry", {"by": "carol"})
    await run.result()


async def unknown_outcome(run: Handle, rig: Rig) -> None:
    """Have a call with an unknown outcome that a person runs again, and then abandons."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "absent", "request": "1", "by": "alice"}))
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "abandon", "request": "2", "by": "alice"}))
    await run.result()


async def step_limit(run: Handle, rig: Rig) -> None:
    """Reach the limit of steps, and continue."""
    await status_of(run, "blocked")
    await run.signal("retry")
    await run.result()


async def cancelled(run: Handle, rig: Rig) -> None:
    """Cancel while a request is open."""
    await status_of(run, "waiting_approval")
    await run.cancel()
    await fails(run)


async def fails(run: Handle, rig: Rig | None = None) -> None:
    """Wait for the end, which is no result."""
    with suppress(WorkflowFailureError):
        raise AssertionError(f"it ended with a result: {await run.result()}")


async def approved(run: Handle, rig: Rig) -> None:
    """Approve the one request."""
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def flooded(run: Handle, rig: Rig) -> None:
    """Send more meaningless signals than are recorded one by one, then decide."""
    await status_of(run, "waiting_approval")
    for number in range(RECORDED + 5):
        await run.signal("nonsense", number)
    await approved(run, rig)


async def was_reset(run: Handle, rig: Rig) -> None:
    """Reset to before a payment that happened, and deny it the second time."""
    await approved(run, rig)
    again = await reset(rig, run, to=(await tasks_of(run))[0], again=False)
    await eventually(lambda: again.query("pending_approvals"), lambda pending: "ran before" in str(pending))
    await again.signal("deny", {"request": "1", "by": "alice"})
    await again.result()


async def by_signal(run: Handle, rig: Rig) -> None:
    """Send as signals what other scenarios send as updates; two calls are decided, and one whose outcome is unknown."""
    await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 3)
    await run.signal("delegate_authority", {"by": "bob", "to": "alice", "seconds": 60})
    revoked = await answer_of(run.execute_update("revoke", {"by": "bob", "delegated_to": "alice"}))
    assert revoked["outcome"] == "accepted", revoked
    await run.signal("deny", {"request": "1", "by": "alice"})
    await run.signal("respond", {"request": "2", "by": "alice", "result": "later"})
    await run.signal("reconcile", {"request": "3", "decision": "happened", "result": "it did", "by": "alice"})
    await run.result()


async def continued(run: Handle, rig: Rig) -> None:
    """Continue as new several times, once while a request is open."""
    await status_of(run, "waiting_approval")
    for _ in range(12):
        await run.signal("whatever")
        await asyncio.sleep(0.1)
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def said(run: Handle, rig: Rig) -> None:
    """Send messages of every kind to a busy run, the last of which interrupts it."""
    await eventually(lambda: asyncio.sleep(0, len(rig.llm.requests)), bool)
    await answer_of(run.execute_update("say", {"message": "wait", "by": "bob"}))
    await run.signal("say", {"message": "now or never", "when_busy": "reject"})
    await run.signal("say", {"message": [{"type": "text", "text": "stop"}], "when_busy": "interrupt"})
    await run.result()


async def idle(run: Handle, rig: Rig) -> None:
    """Stay open for a second after each answer; one message arrives, and no other."""
    await status_of(run, "waiting_message")
    await run.signal("say", "and then?")
    await run.result()


async def reopened(run: Handle, rig: Rig) -> None:
    """Close from outside while a request is open, and re-open."""
    await status_of(run, "waiting_approval")
    await run.terminate()
    rig.llm.script = lambda _: say("done")
    again = await rig.start("go on", thread=run.id, resume=True, previous_run=run.first_execution_run_id)
    await again.result()


async def forked_strictly(run: Handle, rig: Rig) -> Handle:
    """Fork a thread as `forked` does, with another LLM and under a further policy, which denies."""
    await status_of(run, "waiting_approval")
    await eventually(lambda: rig.threads.length(run.id), bool)
    lines = await rig.threads.read(run.id)
    point = ForkPoint(thread=run.id, position=len(lines) - 1, head=json.loads(lines[-1])["digest"])
    options = {"llm": "other", "policies": (Policy(rules=(deny("pay"), allow())),)}
    fork = await rig.start("and pay 2", thread="forked_strictly", fork=point, features=FORKS, by="alice", **options)
    await fork.result()
    return fork


async def forked(run: Handle, rig: Rig) -> Handle:
    """Fork a thread while a request is open, remove the requirement to ask for effects, and return the fork."""
    await status_of(run, "waiting_approval")
    await eventually(lambda: rig.threads.length(run.id), bool)
    lines = await rig.threads.read(run.id)
    point = ForkPoint(thread=run.id, position=len(lines) - 1, head=json.loads(lines[-1])["digest"])
    fork = await rig.start("and pay 2", thread="forked", fork=point, features=FORKS, by="alice")
    await status_of(fork, "waiting_approval")
    await fork.signal("lift", {"constraint": 0, "by": "alice"})
    await fork.signal("approve", {"request": "2", "by": "alice"})
    await fork.result()
    return fork


async def moved(run: Handle, rig: Rig) -> None:
    """Migrate a run while a request is open, import it again in the same cluster, and migrate it while it waits."""
    await status_of(run, "waiting_approval")
    await run.signal("move", {"by": "alice", "reason": "to and fro"})
    await run.result()
    lines = await rig.threads.read(run.id)
    head = json.loads(lines[-1])["digest"]
    point = ImportPoint(position=len(lines) - 1, head=head, manifest=64 * "0", signer="key")
    again = await rig.start("", thread=run.id, resume=True, imported=point, features=MOVES, by="alice", workspace=None)
    await status_of(again, "waiting_approval")
    await again.signal("approve", {"request": "1", "by": "alice"})
    await status_of(again, "waiting_message")
    await again.execute_update("move", {"by": "alice"})
    await again.result()


async def undone(run: Handle, rig: Rig) -> None:
    """Reverse a call with an unknown outcome."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "undo", "request": "1", "by": "alice"}))
    await run.result()


async def authorised(run: Handle, rig: Rig) -> None:
    """A quorum with a reminder, edited arguments, a signature; a rule and a key revoked; an answer for a call."""

    async def pending() -> Any:
        return (await status_of(run, "waiting_approval"))["pending"][0]

    request = await pending()
    await asyncio.sleep(3.5)  # for the reminder, and for a long pause
    await run.signal("approve", {"request": "1", "by": "mallory"})
    await answer_of(run.execute_update("delegate_authority", {"by": "bob", "to": "alice", "seconds": 60}))
    changed = {"decision": "approve", "request": "1", "by": "bob", "arguments": {"amount": 7}, "remember": True}
    await answer_of(run.execute_update("decide", changed))
    request = await eventually(pending, lambda request: request["request"] == "2")
    decision = Decision(decision="approve", request="2", by="alice", digest=request["digest"], remember=True)
    signature = sign(ALICE, decision.signed_bytes(run.id))
    await answer_of(run.execute_update("decide", {**decision.model_dump(exclude_none=True), "signature": signature}))
    await eventually(pending, lambda request: request["request"] == "3")
    await run.signal("revoke", {"by": "alice", "remembered": "1"})
    await run.signal("revoke", {"by": "bob", "delegated_to": "alice"})
    lost = KeyRevocation(by="alice", revoked=public_key(ALICE), reason="a lost laptop")
    signature = sign(ALICE, lost.signed_bytes(run.id))
    revocation = {**lost.model_dump(), "signature": signature}
    await answer_of(run.execute_update("revoke_key", revocation))
    await run.signal("revoke_key", revocation)
    for person in ("bob", "alice"):
        await run.signal("respond", {"request": "3", "by": person, "result": "not any more"})
    await run.result()


async def recalled(run: Handle, rig: Rig) -> None:
    """Show an agent the workspace's files; it must ask before it stores a standing memory."""
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


def at_length(conversation: Conversation) -> Reply:
    """Look at four long things, and sum up when asked."""
    if conversation.last_user_message == INSTRUCTION:
        return say("looked at three")
    looked = 3 * ("looked at three" in str(conversation.messages[1])) + conversation.replies
    return call("look", at="x" * 700) if looked < 4 else say("done")


def when_asked(conversation: Conversation) -> Reply:
    """Look at something, answer each message, and sum up when asked."""
    if conversation.last_user_message == INSTRUCTION:
        return say("so far")
    looked = "looked at one" in str(conversation.messages)
    return say("answered") if conversation.replies or looked else call("look", at="x")


async def asked(run: Handle, rig: Rig) -> None:
    """Ask for a compaction of a run that waits for a message, twice; a message after it is answered."""
    await status_of(run, "waiting_message")
    await answer_of(run.execute_update("compact", {"by": "alice", "reason": "a new topic"}))
    await run.signal("compact", {"by": "bob"})
    await eventually(lambda: events_of(run), lambda events: any(each.type == "context_compacted" for each in events))
    await run.execute_update("say", {"message": "and now?", "by": "alice"})
    await run.result()


def meeting_constraints(conversation: Conversation) -> Reply:
    """Fetch an invoice that cannot be fetched, twice, then after a message one that nobody can, and another one."""
    here, other = call("fetch", id=11), call("fetch", id=1)
    replies = [here, together(here, other), say("locked"), here, call("fetch", id=21), other, say("all locked")]
    return (*replies, other, say("done"))[conversation.replies]


async def constrained(run: Handle, rig: Rig) -> None:
    """Remove one constraint by update and another by signal; an unknown constraint cannot be removed."""
    await status_of(run, "waiting_message")
    await answer_of(run.execute_update("lift", {"constraint": 1, "by": "alice", "reason": "unlocked"}))
    await answer_of(run.execute_update("lift", {"constraint": 1, "by": "alice"}))
    await run.execute_update("say", {"message": "again", "by": "alice"})
    await eventually(lambda: run.query("state"), lambda state: state["result"] == "all locked")
    await run.signal("lift", {"constraint": 5, "by": "bob"})
    await run.signal("lift", {"constraint": 99, "by": "bob"})
    await run.execute_update("say", {"message": "and now", "by": "alice"})
    await run.result()


def looks_again(conversation: Conversation) -> Reply:
    """Look at the same thing over and over; then try to wipe until the run is blocked."""
    if "unblocked" in str(conversation.messages):
        return say("done")
    return call("look", at="a") if conversation.replies < 11 else call("wipe")


async def repeated(run: Handle, rig: Rig) -> None:
    """Approve a repeated call, which grants the same number again; then deny it; unblock the run with a message."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "approve", "request": "1", "by": "alice"}))
    await eventually(lambda: run.query("state"), lambda state: [each["request"] for each in state["pending"]] == ["2"])
    await run.signal("deny", {"request": "2", "by": "alice", "reason": "it is still a"})
    await status_of(run, "blocked")
    await run.execute_update("say", {"message": "unblocked", "by": "alice"})
    await answer_of(run.execute_update("retry", {"by": "alice"}))
    await run.result()


def first_looks(conversation: Conversation) -> Reply:
    """Ask to pay, look at something, and answer."""
    done = conversation.replies
    return [together(call("pay", amount=1), call("look", at="a")), call("look", at="b"), say("done")][min(done, 2)]


async def paused(run: Handle, rig: Rig) -> None:
    """Pause with a request open, twice, approve meanwhile, resume; then again, and for a while, and send a message."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("pause", {"by": "alice", "reason": "let me look"}))
    await run.signal("pause", {"by": "alice", "reason": "let me look again"})
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.signal("resume", {"by": "bob"})
    await status_of(run, "waiting_message")
    await answer_of(run.execute_update("pause", {"by": "alice"}))
    await answer_of(run.execute_update("resume", {"by": "bob", "reason": "seen"}))
    await answer_of(run.execute_update("pause", {"by": "alice", "seconds": 0.5}))
    await run.execute_update("say", {"message": "and now?", "by": "alice"})
    await run.result()


async def refined(run: Handle, rig: Rig) -> None:
    """Refine the task while a request is open, by update and by signal, which leaves the request valid; then again."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("refine", {"kind": "narrow", "text": "only a and b", "by": "alice", "id": "1"}))
    await answer_of(run.execute_update("refine", {"kind": "narrow", "text": "only a and b", "by": "alice", "id": "1"}))
    await run.signal("refine", {"kind": "correct", "text": "the amount is 1", "by": "bob"})
    await run.signal("refine", {"kind": "widen", "text": "everything", "by": "bob"})
    await run.signal("approve", {"request": "1", "by": "alice"})
    await status_of(run, "waiting_message")
    await answer_of(run.execute_update("refine", {"kind": "rescope", "text": "look again", "by": "alice"}))
    await run.result()


async def reclassified(run: Handle, rig: Rig) -> None:
    """Give the run to another agent while it waits for a message, by update, and reduce its budget by signal."""
    await status_of(run, "waiting_message")
    await run.signal("reclassify", {"trust": "most", "by": "alice", "reason": "it is known"})
    await run.signal("reclassify", {"budget": {"steps": 20}, "by": "alice", "reason": "less is enough"})
    change = {"agent": "reporter", "by": "alice", "reason": "it reports"}
    await answer_of(run.execute_update("reclassify", change))
    await run.result()


async def answered(run: Handle, rig: Rig) -> None:
    """Answer the question of a tool's server."""
    await status_of(run, "waiting_approval")
    await run.signal("respond", {"request": "1", "by": "alice", "result": '{"name": "Ann"}'})
    await run.result()


async def budgeted(run: Handle, rig: Rig) -> None:
    """Exhaust a budget, reject invalid extensions, and extend it twice: too little, and enough."""
    await status_of(run, "blocked")
    await run.signal("extend", {"steps": -1, "by": "alice"})
    await run.execute_update("extend", {"steps": 1, "by": "alice", "id": "1"})
    await answer_of(run.execute_update("extend", {"steps": 1, "by": "alice", "id": "1"}))
    await run.signal("extend", {"steps": 3, "by": "bob"})
    await run.result()


async def postponed(run: Handle, rig: Rig) -> None:
    """Send a message to a run whose call has to wait for Sunday."""
    await status_of(run, "dormant")
    await answer_of(run.execute_update("say", {"message": "not this week", "by": "alice"}))
    await run.result()


async def adopted(run: Handle, rig: Rig) -> None:
    """Ask for a policy that no worker has, and then for that of the workers of today; the call that waited is made."""
    await run.signal("adopt_policy", {"policy": "0" * 64, "by": "alice"})
    await eventually(lambda: events_of(run), lambda events: events[-1].type == "policy_change_failed")
    change = {"policy": CATALOG.agents["clerk"].policy.hash, "by": "alice", "reason": "any day"}
    await answer_of(run.execute_update("adopt_policy", change))
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def lost(run: Handle, rig: Rig) -> None:
    """Lose an attempt whose request the LLM has received, and have it reply to the next one."""

    async def sent() -> list[str]:
        return [each.activity_id for each in (await run.describe()).raw_description.pending_activities]

    async def received() -> int:
        return len(rig.llm.requests)

    await eventually(received, bool)
    (activity,) = await sent()
    rig.llm.script = lambda _: say("done")
    await lose_attempt(rig.client, run, activity)
    await run.result()


def sleepy(conversation: Conversation) -> Reply:
    """Sleep badly and well, wait for earlier and later events, and be woken by a message and a person."""
    bad, nap = call("sleep_until", until="tomorrow"), call("sleep_until", until="2s")
    waits = together(
        call("wait_for_event", name="early"),
        call("wait_for_event", name="built", match={"n": 2}, until="1h"),
        call("sleep_until", until="20d"),
    )
    never = call("wait_for_event", name="never")
    return [bad, nap, waits, never, never, say("done")][conversation.replies]


async def dormant(run: Handle, rig: Rig) -> None:
    """Send events early, twice, unmatched and matched; wake the run, send a message, wake it again."""
    await eventually(lambda: run.query("state"), lambda state: state["status"] == "dormant")
    await answer_of(run.execute_update("wake", {"event": "early", "id": "1", "data": {"n": 1}, "by": "ci"}))
    await run.signal("wake", {"event": "early", "id": "1"})
    await eventually(lambda: run.query("state"), lambda state: len((state["dormancy"] or {}).get("waits", ())) == 2)
    await run.signal("wake", {"event": "built", "data": {"n": 1}})
    await answer_of(run.execute_update("wake", {"event": "built", "data": {"n": 2}, "by": "ci"}))
    await answer_of(run.execute_update("wake", {"by": "alice", "reason": "enough"}))
    await eventually(lambda: run.query("state"), lambda state: state["step"] == 4 and state["status"] == "dormant")
    await answer_of(run.execute_update("say", {"message": "still there?", "by": "alice"}))
    await eventually(lambda: run.query("state"), lambda state: state["step"] == 5 and state["status"] == "dormant")
    await run.signal("wake", {"by": "bob"})
    await run.result()


def polling(conversation: Conversation) -> Reply:
    """Poll for a present value, for one that never changes, for an impossible call, and for a forbidden one."""

    def look(at: str, condition: Any, **more: Any) -> Reply:
        return call("check_back", tool="look", arguments={"at": at}, condition=condition, **more)

    return [
        together(call("check_back", tool="wipe", condition={"changes": True}), look("a", {"contains": "a"})),
        look("b", {"changes": True}, until="2s"),
        call("check_back", tool="fetch", arguments={"id": "12"}, condition={"changes": True}),
        look("c", {"equals": {"never": True}}),
        say("done"),
    ][conversation.replies]


async def polled(run: Handle, rig: Rig) -> None:
    """Pause and resume the run while it polls for a value that never comes, and wake it by a message."""

    def looked(state: Any) -> Any:
        asleep = state["step"] == 4 and state["status"] == "dormant"
        return asleep and state["dormancy"]["waits"][0]["polls"]["count"]

    await eventually(lambda: run.query("state"), looked)
    await answer_of(run.execute_update("pause", {"by": "alice"}))
    await eventually(lambda: run.query("state"), lambda state: state["status"] == "paused")
    await answer_of(run.execute_update("resume", {"by": "alice"}))
    await answer_of(run.execute_update("say", {"message": "still there?", "by": "alice"}))
    await run.result()


def too_long(conversation: Conversation) -> Reply:
    """Look at two long things, of which one fits a request."""
    if conversation.last_user_message == INSTRUCTION:
        return say("looked at one")
    if len(str(conversation.messages)) > 2_500:
        return fail(400, "too long", code="context_length_exceeded")
    looked = ("looked at one" in str(conversation.messages[1])) + conversation.replies
    return call("look", at="x" * 700) if looked < 2 else say("done")


def until_stopped(conversation: Conversation) -> Reply:
    """Answer only after a message `stop`."""
    return say("done") if conversation.last_user_message == "stop" else hang()


async def learnt(run: Handle, rig: Rig) -> None:
    """Deny one of the LLM's learnings, and approve another."""
    await status_of(run, "waiting_approval")
    await run.signal("deny", {"request": "2", "by": "alice", "reason": "not so"})
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def not_learnt(run: Handle, rig: Rig) -> None:
    """Be blocked, answer, and have an LLM that cannot be asked for its learnings."""
    await status_of(run, "blocked")
    notes = ["run_blocked", "tool_call_requested", "verdict_given", "tool_call_started", "tool_call_finished"]
    await eventually(lambda: events_of(run), lambda events: [event.type for event in events[-5:]] == notes)
    rig.llm.script = steps([call("update_progress", status="half", next_action="all"), say("done"), fail(401, "gone")])
    await run.signal("retry", {"by": "carol"})
    await run.result()


Scenario = tuple[Script, Callable[[Handle, Rig], Awaitable[Handle | None]], dict[str, Any]]

SCENARIOS: dict[str, Scenario] = {
    "plain": (steps([together(call("look", at="a"), call("look", at="b")), call("wipe"), say("done")]), plain, {}),
    "rejected_replies": (
        steps([together(call_verbatim("look", "{"), call("fly")), cut_off("I will"), say("done")]),
        plain,
        {},
    ),
    "approvals": (steps([together(call("pay", amount=1), call("pay", amount=2)), say("done")]), approvals, {}),
    "retried": (lambda _: fail(401, "wrong key"), retried, {}),
    "unknown_outcome": (steps([call("stall"), say("done")]), unknown_outcome, {}),
    "step_limit": (steps([call("look", at=str(number)) for number in range(5)] + [say("done")]), step_limit, {}),
    "cancelled": (steps([call("pay", amount=1)]), cancelled, {}),
    "continued": (
        steps([call("look", at=str(number)) for number in range(8)] + [call("pay", amount=1), say("done")]),
        continued,
        {"agent": "mover"},
    ),
    "compacted": (at_length, plain, {"agent": "folder"}),
    "compacted_on_request": (when_asked, asked, {"idle_limit": 3.0}),
    "constrained": (meeting_constraints, constrained, {"agent": "folder", "idle_limit": 10.0}),
    "repeated": (looks_again, repeated, {"agent": "looper"}),
    "paused": (first_looks, paused, {"idle_limit": 1.0}),
    "refined": (first_looks, refined, {"idle_limit": 10.0}),
    "reclassified": (
        steps([say("hard"), say("harder"), call("final_result", result=[3])]),
        reclassified,
        {"agent": "refiner", "idle_limit": 10.0, "features": UPDATES["reclassify"]},
    ),
    "answered": (
        steps([call("order", tickets=2), say("done")]),
        answered,
        {"agent": "buyer", "features": FOREIGN_WAITS},
    ),
    "dormant": (sleepy, dormant, {"agent": "sleeper"}),
    "refined_by_agent": (
        steps([call("refine_task", kind="narrow", text="only a"), say("done")]),
        approved,
        {"agent": "refiner"},
    ),
    "budgeted": (
        steps([*(call("look", at=str(n)) for n in range(4)), say("half of it"), call("look", at="9"), say("done")]),
        budgeted,
        {"agent": "saver"},
    ),
    "structured": (
        steps(
            [say("three"), call("final_result", result=["x"]), call("look", at="a"), call("final_result", result=[3])]
        ),
        plain,
        {"agent": "reporter"},
    ),
    "previewed": (steps([call("transfer", cents=5), say("done")]), approved, {"agent": "banker"}),
    "adopted": (steps([call("pay", amount=1), say("done")]), adopted, {}),
    "postponed": (steps([call("pay", amount=1), say("done")]), postponed, {"agent": "sunday_clerk"}),
    "lost_call": (lambda _: hang(), lost, {"agent": "saver"}),
    "pictured": (steps([call("look", at="a picture"), say("done")]), plain, {}),
    "polled": (polling, polled, {"agent": "poller"}),
    "overflowed": (too_long, plain, {}),
    "said": (until_stopped, said, {}),
    "idle": (lambda conversation: say(f"answer {conversation.replies + 1}"), idle, {"idle_limit": 1.0}),
    "undone": (steps([call("stall"), say("done")]), undone, {}),
    "authorised": (
        steps([call("pay", amount=6), call("pay", amount=7), call("pay", amount=8), say("done")]),
        authorised,
        {"agent": "treasurer", "by": "carol"},
    ),
    "expired": (steps([call("wipe"), say("done")]), plain, {"agent": "treasurer"}),
    "recalled": (
        steps([call("remember", text="tea, not coffee"), call("remember_always", text="tea"), say("done")]),
        recalled,
        {"agent": "keeper", "by": "carol"},
    ),
    "learnt": (
        steps(
            [
                call("look", at="a"),
                say("done"),
                together(
                    call("remember", text="tea, not coffee"), call("note_learning", title="Tea", text="not coffee")
                ),
            ]
        ),
        learnt,
        {"agent": "archivist", "by": "carol"},
    ),
    "not_learnt": (lambda _: fail(401, "wrong key"), not_learnt, {"agent": "archivist"}),
    "reopened": (steps([call("pay", amount=1)]), reopened, {}),
    "failed": (steps([]), fails, {"agent": "nobody"}),
    "unattended": (steps([call("pay", amount=1)]), fails, {"when_blocked": "fail", "features": UNATTENDED}),
    "notified": (steps([call("pay", amount=1), say("done")]), approved, {}),
    "flooded": (steps([call("pay", amount=1), say("done")]), flooded, {}),
    "reset": (steps([call("pay", amount=1), say("done")]), was_reset, {}),
    "scheduled": (steps([call("look", at="a"), say("done")]), plain, {"schedule": "nightly", "features": 1}),
    "moved": (steps([call("pay", amount=1), say("done")]), moved, {"idle_limit": 60}),
    "forked": (
        steps([call("pay", amount=1), call("pay", amount=2), say("done")]),
        forked,
        {"thread": "forked_from"},
    ),
    "forked_strictly": (
        steps([call("pay", amount=1), call("pay", amount=2), say("done")]),
        forked_strictly,
        {"thread": "forked_strictly_from"},
    ),
    "by_signal": (
        steps([together(call("pay", amount=1), call("pay", amount=2), call("stall")), say("done")]),
        by_signal,
        {"agent": "lender"},
    ),
}


def delegates(conversation: Conversation) -> Reply:
    """As the manager, wait for a clerk, and leave another one running; as a clerk, pay."""
    if conversation.messages[0]["content"].startswith("Delegate"):
        first = call("run_agent", agent="clerk", task="first")
        return [first, call("run_agent", agent="clerk", task="second", background=True), say("done")][
            conversation.replies
        ]
    return [call("pay", amount=1), say("paid")][conversation.replies]


async def delegated(run: Handle, rig: Rig) -> None:
    """Send a false hint of a sub-agent's end, decide its request, and let the run cancel the other one."""
    subagent = rig.client.get_workflow_handle(f"{run.id}.1")
    await eventually(lambda: run.query("state"), lambda state: state["subagents"])
    await status_of(subagent, "waiting_approval")
    await run.signal("subagent_ended", {"thread": "somebody-else"})
    await subagent.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


def allots(conversation: Conversation) -> Reply:
    """As the steward, delegate a look; as the saver, look until the allowance has ended."""
    if conversation.messages[0]["content"].startswith("Delegate"):
        return [call("run_agent", agent="saver", task="look"), say("done")][conversation.replies]
    return [call("look", at="1"), call("look", at="2"), say("half of it")][conversation.replies]


async def placed(run: Handle, rig: Rig) -> None:
    """Wait for a node of the run's region, and then for one that can print."""
    await eventually(lambda: run.query("state"), lambda state: bool(state.get("places", {}).get("waits_for")))
    NODE.labels["region"] = "eu"
    try:
        await run.result()
    finally:
        NODE.labels.clear()


SCENARIOS |= {
    "placed": (
        steps([call("print_invoice", id=1), say("done")]),
        placed,
        {"agent": "printer", "scope": (("region=eu",),), "features": PLACES},
    ),
    "delegated": (delegates, delegated, {"agent": "manager"}),
    "allotted": (allots, plain, {"agent": "steward"}),
    "typed_context": (
        steps([call("check_pin", pin=1), call("charge", cents=5), say("done")]),
        plain,
        {"agent": "teller", "context": {"number": "4711"}, "features": TYPED_CONTEXT},
    ),
    "descended": (
        steps([call("fetch", id=1), say("done")]),
        plain,
        {"lineage": Lineage(path=("gone",), number=1, key="k", deepest=3), "depth": 1, "features": 1},
    ),
}

LOOP = "loop"
LOOP_CANCELLED = "loop_cancelled"
_HOURS = Policy(rules=(later("pay", until=ONE_MINUTE_A_WEEK), allow("pay")))
EARLIER: dict[str, Catalog] = {"adopted": Catalog(agents=[clerk().model_copy(update={"policy": _HOURS})], tools=TOOLS)}
"""Scenario → the catalog of the workers that begin the run, until it sleeps."""

LOOP_PAUSED = "loop_paused"
LOOP_BUDGETED = "loop_budgeted"
BUILDERS = Catalog(
    agents=[Agent(name="builder", instructions="Build.", policy=Policy(rules=(allow(),)), tools=memory_tools())]
)


def builds(conversation: Conversation) -> Reply:
    """Plan two tasks, abandon the first one once, and complete both."""
    brief = conversation.messages[1]["content"]
    task = brief.partition("## Your task, from TASKS.md\n\n")[2].partition("\n")[0]
    if not task:
        return [call("add_task", title="one"), call("add_task", title="two"), say("planned")][conversation.replies]
    if task == "one" and "Earlier attempts" not in brief:
        return say("no idea")
    return [call("complete_task", title=task, what="did it"), say("done")][conversation.replies]


async def build(run: Handle, rig: Rig) -> None:
    """Pause a loop, resume it, let it reach its limit, and grant more."""
    by = {"by": "alice"}
    await run.signal("pause", by)
    await run.signal("pause", "what?")
    await status_of(run, "dormant", "paused")  # dormant: no worker has read the files yet
    await run.execute_update("resume", by)
    await status_of(run, "blocked")
    await run.execute_update("retry", by)
    await run.result()


async def pause_build(run: Handle, rig: Rig) -> None:
    """Pause a blocked loop until a time, reject invalid signals, flood it until it continues as new, and resume it."""
    by = {"by": "alice", "reason": "lunch"}
    await status_of(run, "blocked")
    await run.execute_update("pause", {**by, "seconds": 1})
    await run.signal("resume", {"by": "bob"})
    await eventually(lambda: run.query("state"), lambda state: not state["paused"])
    await run.signal("pause", {**by, "seconds": -1})
    await run.signal("pause", {**by, "seconds": 1})
    await eventually(lambda: run.query("state"), lambda state: state["paused"])
    await eventually(lambda: run.query("state"), lambda state: not state["paused"])
    for number in range(SIGNAL_LIMIT + 10):
        await run.signal("resume", {"by": f"m{number}"})
    latest = rig.client.get_workflow_handle(run.id)
    await eventually(latest.describe, lambda found: found.run_id != run.first_execution_run_id)
    await latest.signal("retry", by)
    await latest.result()


def overspends(conversation: Conversation) -> Reply:
    """Plan a task, note one thing after another until the budget ends, and complete the task in a later attempt."""
    if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
        return say("half of it")
    if "Earlier attempts" in conversation.messages[1]["content"]:
        return builds(conversation)
    if "## Your task, from TASKS.md" in conversation.messages[1]["content"]:
        return call("note_learning", title=f"note {conversation.replies}", text="x" * 3_000)
    return [call("add_task", title="one"), say("planned")][conversation.replies]


async def grant(run: Handle, rig: Rig) -> None:
    """Let a loop reach its limit of tokens, and grant more."""
    assert (await status_of(run, "blocked"))["blocked"]["cause"] == "TokenLimit"
    await run.execute_update("retry", {"by": "alice"})
    await run.result()


async def cancel_build(run: Handle, rig: Rig) -> None:
    """Cancel a loop while the agent of its first iteration waits for the LLM."""
    await eventually(lambda: asyncio.sleep(0, len(rig.llm.requests)), bool)
    await run.cancel()
    await fails(run)


LAUNCHER = "launcher"


async def ends(run: Handle, rig: Rig) -> None:
    """Wait until a launcher has ended, and so its run."""
    await run.result()


LAUNCHERS: dict[str, Scenario] = {LAUNCHER: (lambda _: say("done"), ends, {})}

LOOPS: dict[str, Scenario] = {
    LOOP: (builds, build, {}),
    LOOP_CANCELLED: (lambda _: hang(), cancel_build, {}),
    LOOP_PAUSED: (builds, pause_build, {}),
    LOOP_BUDGETED: (overspends, grant, {"limits": LoopLimits(tokens=60_000, attempts=1)}),
}
