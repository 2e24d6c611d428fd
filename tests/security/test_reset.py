"""After `temporal workflow reset`, or in runs closed mid-call, no effect is repeated or misreported as prevented.

Each test resets a real run on the real server to any workflow task, as anyone who reaches Temporal's port can.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowHandle

from holdfast import Absent, Agent, Catalog, Effect, Found, Limits, Policy, ToolContext, allow, ask, tool
from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import ToolCallFinished
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say, steps, together
from tests.support.rig import (
    Rig,
    StartRig,
    check_thread,
    events_of,
    eventually,
    reset,
    runs_of,
    status_of,
    tasks_of,
    try_reset,
)

Run = WorkflowHandle[Any, Any]


def made(folder: Path) -> list[str]:
    """Return the effects that have happened, in order."""
    file = folder / "made"
    return file.read_text().splitlines() if file.exists() else []


def make(context: ToolContext, what: str) -> str:
    """Perform an observable effect."""
    with (context.workspace / "made").open("a") as file:
        file.write(f"{what}\n")
    return what


@tool(effect="unsafe")
def pay(amount: int, context: ToolContext) -> str:
    """Pay."""
    return make(context, f"paid {amount}")


@tool(effect="unsafe")
def mail(to: str, context: ToolContext) -> str:
    """Send a mail."""
    return make(context, f"mailed {to}")


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


def catalog(**limits: Any) -> Catalog:
    """Return an agent that asks before it pays, but not before it sends a mail."""
    policy = Policy(rules=(ask("pay"), allow("mail"), allow("look")))
    agent = Agent(name="clerk", instructions="Work.", policy=policy, limits=Limits(**limits), tools=[pay, mail, look])
    return Catalog(agents=[agent])


async def finish(rig: Rig, run: Run, decision: str = "approve") -> str:
    """Decide every request until the run ends, and return its result."""
    current = rig.client.get_workflow_handle(run.id)
    while (await status_of(current, "waiting_approval", "completed"))["status"] != "completed":
        for request in await current.query("pending_approvals"):
            await current.signal(decision, {"request": request["request"], "by": "alice"})
    result: str = (await current.result())["result"]
    return result


async def verified(rig: Rig, stack: Stack, thread: str) -> Verification:
    """Return the verification of a thread, as `starter.py verify` makes it."""
    async with open_pool(stack.database_url, size=2) as pool:
        store = PostgresThreads(pool)
        evidence = Evidence(partial(effects_of, pool), store.asides, PostgresArtifacts(pool))
        return await verify(Threads(rig.client, record=store), thread, evidence=evidence)


def clerk(conversation: Conversation) -> Reply:
    """Look, pay and send mails, some in parallel, and one payment twice."""
    plan: list[Reply] = [
        call("look", at="the books"),
        together(call("pay", amount=1), call("mail", to="ann")),
        call("look", at="the till"),
        together(call("pay", amount=2), call("pay", amount=2)),
        say("done"),
    ]
    return plan[conversation.replies]


ALL = ["mailed ann", "paid 1", "paid 2", "paid 2"]


class Numbering:
    """An LLM that, once it is `changed`, makes the same calls in other steps and under other numbers."""

    changed = False

    def __call__(self, conversation: Conversation) -> Reply:
        """Reply."""
        if not self.changed:
            return clerk(conversation)
        asked = [
            (each["function"]["name"], each["function"]["arguments"])
            for message in conversation.messages
            for each in message.get("tool_calls") or ()
        ]
        left = [
            (name, arguments)
            for name, arguments, times in (
                ("mail", {"to": "ann"}, 1),
                ("pay", {"amount": 2}, 2),
                ("pay", {"amount": 1}, 1),
            )
            for _ in range(times - sum(each[0] == name and str(*arguments.values()) in each[1] for each in asked))
        ]
        if not left:
            return say("done")
        name, arguments = left[0]
        return together(call("look", at="it again"), call(name, **arguments))


ANY = slice(None)
FEW = slice(1, None, 9)


@pytest.mark.parametrize(
    ("renumbers", "which"),
    [
        pytest.param(True, FEW, id="few-other-numbers"),
        pytest.param(False, ANY, id="any-the-same-calls", marks=pytest.mark.slow),
        pytest.param(True, ANY, id="any-other-numbers", marks=pytest.mark.slow),
    ],
)
async def test_no_reset_to_any_task_repeats_an_effect(
    rig: StartRig, stack: Stack, renumbers: bool, which: slice
) -> None:
    """After a reset to any task, however the LLM then numbers its calls, each effect has happened once."""
    llm = Numbering()
    async with rig(catalog(), llm) as r:
        run = await r.start()
        assert await finish(r, run) == "done"
        assert sorted(made(r.workspace)) == ALL
        llm.changed = renumbers
        resets = 0
        for task in (await tasks_of(run))[which]:
            if (again := await try_reset(r, run, to=task)) is None:
                continue
            resets += 1
            assert await finish(r, again) == "done"
            assert sorted(made(r.workspace)) == ALL, task
            await check_thread(r.client, again)
        assert resets
        report = await verified(r, stack, run.id)
        assert report.ok, (report.where, report.position, report.reason)


@pytest.mark.extended
@pytest.mark.parametrize("limit", [50, pytest.param(20, marks=pytest.mark.slow)])
async def test_no_reset_before_or_after_continue_as_new_repeats_an_effect(
    rig: StartRig, stack: Stack, limit: int
) -> None:
    """Each Temporal run of a thread can be reset, even one that has continued as new."""
    async with rig(catalog(history_events=limit), clerk) as r:
        run = await r.start(thread=f"chain-{uuid4().hex[:6]}")
        assert await finish(r, run) == "done"
        chain = await runs_of(r.client, run)
        assert len(chain) > 1
        for each in chain:
            tasks = await tasks_of(each)
            for task in sorted({tasks[len(tasks) // 2], *(tasks[:1] if limit < 50 else ())}):
                if (again := await try_reset(r, each, to=task)) is None:
                    continue
                assert await finish(r, again) == "done"
                assert sorted(made(r.workspace)) == ALL, (each.run_id, task)
        report = await verified(r, stack, run.id)
        assert report.ok, (report.where, report.position, report.reason)


async def test_a_reopened_run_reset_to_its_beginning_does_not_read_its_own_events(rig: StartRig) -> None:
    """After a reset to its very beginning, a run does not load its own events as those of an earlier run."""
    async with rig(catalog(), steps([say("nothing"), call("pay", amount=1), say("done"), *[say("done")] * 3])) as r:
        first = await r.start(thread=f"past-{uuid4().hex[:6]}")
        await first.result()
        run = await r.start("pay now", thread=first.id, resume=True, previous_run=first.first_execution_run_id)
        assert await finish(r, run) == "done"
        again = await reset(r, run, to=(await tasks_of(run))[0])
        await finish(r, again)
        assert made(r.workspace) == ["paid 1"]
        events = await events_of(again)
        assert [event.type for event in events].count("run_started") == 1
        assert events[0].position == 5, "it goes on behind the first run's events"


async def test_a_request_reopened_by_a_reset_reports_the_earlier_effect(rig: StartRig) -> None:
    """The new request says that the payment happened, and a denial does not claim to have prevented it."""
    async with rig(catalog(), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        await finish(r, run)
        assert made(r.workspace) == ["paid 1"]
        asked = next(event.event_id for event in (await run.fetch_history()).events if _signals(event))
        again = await reset(r, run, to=max(each for each in await tasks_of(run) if each < asked), again=False)
        (request,) = await eventually(
            lambda: again.query("pending_approvals"), lambda asked: "ran before" in str(asked)
        )
        assert "it ran before, as call 1, with the outcome ok: paid 1" in request["why"]
        assert await finish(r, again, "deny") == "done"
        (denied,) = [event for event in await check_thread(r.client, again) if isinstance(event, ToolCallFinished)]
        assert denied.status == "denied"
        assert "with the outcome ok: paid 1. That was not undone." in denied.content


def _signals(event: Any) -> bool:
    return bool(event.HasField("workflow_execution_signaled_event_attributes"))


class Bank:
    """A bank that accepts a transfer or not, but never responds."""

    books = True

    async def transfer(self, amount: int, context: ToolContext) -> str:
        """Transfer money, and hang."""
        if self.books:
            make(context, f"transferred {amount}")
        (context.workspace / "inside").touch()
        await asyncio.Event().wait()
        return "never"

    def booked(self, amount: int, context: ToolContext) -> Found | Absent:
        """Return whether it was booked."""
        return Found("booked") if f"transferred {amount}" in made(context.workspace) else Absent()


@pytest.mark.parametrize(
    ("effect", "books", "status"),
    [("verifiable", True, "ok"), ("verifiable", False, "cancelled"), ("unsafe", True, "unknown")],
    ids=["found", "absent", "nobody-can-tell"],
)
async def test_a_thread_closed_in_mid_payment_resolves_it_when_reopened(
    rig: StartRig, effect: str, books: bool, status: str
) -> None:
    """The tool's check resolves the payment; without one the outcome is unknown; nothing is repeated."""
    bank = Bank()
    bank.books = books
    check = bank.booked if effect == "verifiable" else None
    transfer = tool(effect=Effect(effect), check=check, settles_within=0, name="transfer")(bank.transfer)
    agent = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow("transfer"),)), tools=[transfer])
    script = steps([call("transfer", amount=5), say("done")])
    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, (r.workspace / "inside").exists()), bool)
        await run.terminate()
        last = (await run.describe()).run_id
        again = await r.start("go on", thread=run.id, resume=True, previous_run=last)
        assert (await again.result())["result"] == "done"
        (settled,) = [event for event in await events_of(again) if isinstance(event, ToolCallFinished)]
        assert (settled.status, settled.number) == (status, 1)
        assert len(made(r.workspace)) == int(books)
        messages = r.llm.requests[-1].json()["messages"]
        assert [message["role"] for message in messages[-2:]] == ["tool", "user"]
