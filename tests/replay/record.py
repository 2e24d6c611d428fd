"""Record histories of the current code under `tests/replay/histories/<version>/` (`make histories`).

A recorded history of a released version is never changed or removed: it represents runs that may still be open.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

import holdfast
from holdfast import Agent, Approver, Catalog, Escalation, Limits, Memory, Policy, Terms, allow, ask, deny, tool
from holdfast.authority.signatures import encode_key, public_key, sign
from holdfast.authority.statements import Decision
from holdfast.loop.state import LoopLimits
from holdfast.run.compaction import INSTRUCTION
from holdfast.runtime.client.connect import connect, ensure_search_attributes, stack_config
from holdfast.runtime.devstack.devstack import DevStack
from holdfast.runtime.devstack.ports import Ports, any_free
from holdfast.runtime.encryption.fleet_keys import stack_seals
from holdfast.runtime.memory.tools import memory_tools
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
from tests.rig import Rig, answer_of, eventually, runs_of, start_rig, status_of

ROOT = Path(__file__).parents[2]
HISTORIES = Path(__file__).parent / "histories"

Handle = WorkflowHandle[Any, Any]


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
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


@tool(effect="unsafe", timeout=0.2, undo=lambda: "taken back")
async def stall() -> str:
    """Never return."""
    await asyncio.sleep(60)
    return "never"


def clerk(name: str = "clerk", **limits: Any) -> Agent:
    """Return an agent that asks to pay and may not wipe."""
    policy = Policy(rules=(deny("wipe"), allow("look"), allow("stall")))
    return Agent(name=name, instructions="Work.", policy=policy, limits=Limits(**{"max_steps": 4, **limits}))


ALICE = encode_key(bytes(32))
PEOPLE = (Approver(name="alice", roles=("finance",), keys=(public_key(ALICE),)), Approver(name="bob"))


def treasurer() -> Agent:
    """Return an agent that pays after two approvals, and whose wipes are denied at a time-out."""
    hasty = Terms(by=("alice",), escalate=(Escalation(after=0.3, by=("bob",)),), expires_after=2.5)
    rules = (ask("pay", when="args.amount > 5", terms=Terms(quorum=2, remind_every=3)), ask("wipe", terms=hasty))
    return Agent(
        name="treasurer",
        instructions="Work.",
        policy=Policy(rules=rules, approvers=PEOPLE),
        verify=("glance",),
        limits=Limits(stale_after=0.5),
    )


def keeper() -> Agent:
    """Return an agent that is shown its memory, and may do anything."""
    memory = Memory(files=500, standing=300, semantic=True)
    return Agent(name="keeper", instructions="Work.", policy=Policy(rules=(allow(),)), memory=memory)


CATALOG = Catalog(
    agents=[
        clerk(),
        clerk("mover", max_steps=100, history_events=80),
        clerk("folder", max_steps=100, compaction_tokens=1_000),
        treasurer(),
        keeper(),
    ],
    tools=[look, glance, pay, wipe, stall],
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
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def retried(run: Handle, rig: Rig) -> None:
    """Be blocked by the provider, fixed, and retried."""
    await status_of(run, "blocked")
    rig.llm.script = steps([call("look", at="a"), say("done")])
    await run.signal("retry", {"by": "carol"})
    await run.result()


async def unknown_outcome(run: Handle, rig: Rig) -> None:
    """Have a call with an unknown outcome that a person runs again, and then gives up."""
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
    await status_of(run, "cancelled")


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


async def undone(run: Handle, rig: Rig) -> None:
    """Reverse a call with an unknown outcome."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "undo", "request": "1", "by": "alice"}))
    await run.result()


async def authorised(run: Handle, rig: Rig) -> None:
    """A quorum with a reminder, edited arguments, a signature; a rule remembered and revoked; an answer for a call."""

    async def pending() -> Any:
        return (await status_of(run, "waiting_approval"))["pending"][0]

    request = await pending()
    await asyncio.sleep(3.5)  # for the reminder, and for a long pause
    await run.signal("approve", {"request": "1", "by": "mallory"})
    await answer_of(run.execute_update("delegate_authority", {"by": "bob", "to": "alice", "seconds": 60}))
    changed = {"decision": "approve", "request": "1", "by": "bob", "arguments": {"amount": 7}, "remember": True}
    await answer_of(run.execute_update("decide", changed))
    request = await pending()
    said = Decision(decision="approve", request="1", by="alice", digest=request["digest"], remember=True)
    signature = sign(ALICE, said.signed_bytes(run.id))
    await answer_of(run.execute_update("decide", {**said.model_dump(exclude_none=True), "signature": signature}))
    await eventually(pending, lambda request: request["request"] == "2")
    await run.signal("revoke", {"by": "alice", "remembered": "1"})
    await run.signal("revoke", {"by": "bob", "delegated_to": "alice"})
    for person in ("bob", "alice"):
        await run.signal("respond", {"request": "2", "by": person, "result": "not any more"})
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


Scenario = tuple[Script, Callable[[Handle, Rig], Awaitable[None]], dict[str, Any]]

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
    "reopened": (steps([call("pay", amount=1)]), reopened, {}),
}


LOOP = "loop"
BUILDERS = Catalog(
    agents=[Agent(name="builder", instructions="Build.", policy=Policy(rules=(allow(),)))], tools=memory_tools()
)


def builds(conversation: Conversation) -> Reply:
    """Plan two tasks, give up at the first one once, and complete both."""
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
    await status_of(run, "dormant")
    await run.execute_update("resume", by)
    await status_of(run, "blocked")
    await run.execute_update("retry", by)
    await run.result()


async def record(folder: Path, only: Sequence[str]) -> None:
    """Play scenarios on a real server, and write the history of each of its Temporal runs.

    Args:
        folder: The folder to write to.
        only: The names of the scenarios; other histories stay. Empty for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in (*SCENARIOS, LOOP) if name in only or not only]
    for old in folder.glob("*.json"):
        if old.stem.split(".")[0] in chosen:
            old.unlink()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        stack = DevStack(Path(temporary) / "home", usual=Ports(any_free(), any_free(), any_free()))
        servers = await asyncio.to_thread(stack.start)
        try:
            # A fixed identity: the default one contains the machine's name.
            seals = stack_seals(servers)
            client = await connect({**stack_config(servers), "identity": "holdfast"}, seals=seals)
            await ensure_search_attributes(client)
            for name in chosen:
                script, play, begin = SCENARIOS.get(name, (builds, build, {}))
                own = Path(temporary) / name  # each scenario has its own workspace
                own.mkdir()
                async with start_rig(
                    client,
                    BUILDERS if name == LOOP else CATALOG,
                    script,
                    worker_client=client,
                    database_url=servers.database_url,
                    folder=own,
                    task_queue=name,
                    identity="holdfast",
                ) as rig:
                    if begin.get("agent") == "keeper":
                        (rig.workspace / "TASKS.md").write_text("- [ ] one\n")
                    if name == LOOP:
                        run = await rig.start_loop(name, task="build", limits=LoopLimits(iterations=2))
                    else:
                        run = await rig.start(thread=name, **begin)
                    await play(run, rig)
                    latest = client.get_workflow_handle(name)
                    runs = await runs_of(client, run)
                    if (await latest.describe()).run_id != runs[-1].run_id:
                        runs += [latest]
                    histories = [await each.fetch_history() for each in runs]
                for number, history in enumerate(histories, start=1):
                    file = folder / (f"{name}.json" if len(histories) == 1 else f"{name}.{number}.json")
                    # Stack traces of failed activities contain the folders of the machine that recorded them.
                    text = history.to_json().replace(f"{ROOT}/", "").replace(sys.prefix, ".venv")
                    file.write_text(text + "\n")
                    print(f"{file.relative_to(HISTORIES.parent)}: {len(history.events)} events")
        finally:
            await asyncio.to_thread(stack.stop)


if __name__ == "__main__":
    version, *names = sys.argv[1:] or [holdfast.__version__]
    asyncio.run(record(HISTORIES / version, names))
