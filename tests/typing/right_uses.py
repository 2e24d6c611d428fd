"""A user's catalog, stores, tests and client, which `mypy --strict` must accept. No type is `Any`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, assert_type

from holdfast import (
    Absent,
    Agent,
    Approver,
    ArtifactStore,
    CallRefused,
    Catalog,
    Client,
    Effect,
    Found,
    InMemoryArtifacts,
    InMemoryMemories,
    InMemoryThreads,
    Limits,
    LLMCall,
    LLMOptions,
    LLMResult,
    Memory,
    Middleware,
    PendingRequest,
    Policy,
    ProceedLLM,
    ProceedTool,
    RecordConflict,
    Resource,
    Result,
    Rule,
    ScheduleState,
    Secrets,
    Skill,
    SyncClient,
    SyncThread,
    Terms,
    Thread,
    ThreadState,
    ThreadStore,
    ThreadSummary,
    ThreadTree,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Unknown,
    WorkspacePath,
    allow,
    ask,
    deny,
    load_skills,
    memory_tools,
    resource,
    run,
    run_sync,
    running,
    sign_request,
    tool,
    workspace_tools,
)
from holdfast.testing import CallRecord, Conversation, Reply, ScriptedLLM, ScriptedRun, agent, call, say, steps


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@tool(effect="read", timeout=5)
async def open_invoices(customer: str, limit: int = 10) -> list[str]:
    """List a customer's open invoices."""
    return [customer] * limit


def find_payment(context: ToolContext) -> Found | Absent | Unknown:
    """Find out whether a payment was made."""
    assert_type(context.key, str)
    return Found("receipt") if context.attempt else Absent()


@tool(effect=Effect.VERIFIABLE, check=find_payment, secrets=("BANK_KEY",))
def pay(invoice: str, where: WorkspacePath, context: ToolContext) -> int:
    """Pay an invoice."""
    assert_type(context.secret("BANK_KEY"), str)
    return len(invoice + where)


class Ledger:
    """A resource."""

    def book(self, entry: str) -> int:
        """Book an entry, by hand or as a tool."""
        return len(entry)


class Bank:
    """A resource that needs another."""

    def __init__(self, ledger: Ledger, key: str) -> None:
        self.ledger, self.key = ledger, key


def ledger() -> Ledger:
    """A provider without a lifetime."""
    return Ledger()


@resource(secrets=("BANK_KEY",))
@asynccontextmanager
async def bank(ledger: Ledger, secrets: Secrets) -> AsyncIterator[Bank]:
    """A provider with a lifetime and a secret."""
    yield Bank(ledger, secrets.value("BANK_KEY"))


@tool(effect="idempotent")
async def collect(invoice: str, bank: Resource[Bank]) -> str:
    """Collect a debt."""
    assert_type(bank, Bank)
    assert_type(bank.ledger.book(invoice), int)
    return bank.key


class Threads:
    """A store of one's own."""

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Keep nothing."""
        raise RecordConflict(f"{thread}: position {start}, {len(lines)} lines")

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Return nothing."""
        return [thread.encode()][start:]

    async def length(self, thread: str) -> int:
        """Return 1."""
        return len(thread[:1])


policy = Policy(
    rules=(deny("wipe_*"), ask("pay", when="args.cents > 100", terms=Terms(by=("finance",), quorum=2)), allow()),
    approvers=(Approver(name="alice", roles=("finance",)),),
)
llms = Agent(name="b", instructions="x", llm=("anthropic/c", "gpt-5"), llm_options=LLMOptions(effort="low"))
limits, memory = Limits(max_steps=5), Memory(semantic=True)
dunner = Agent(name="dunning", instructions="Remind politely.", policy=policy, limits=limits, memory=memory)
tools = [greet, open_invoices, pay]
catalog = Catalog(agents=[dunner], tools=[*tools, *workspace_tools(), *memory_tools()], threads=Threads())

assert_type(greet, Tool[str])
assert_type(greet("you"), str)
assert_type(pay, Tool[int])
assert_type(pay.spec.effect, Effect)
assert_type(dunner.policy.rules, tuple[Rule, ...])
assert_type(dunner.limits.max_steps, int)
assert_type(catalog.agents["dunning"], Agent)
assert_type(catalog.threads, ThreadStore | None)
assert_type(catalog.artifacts, ArtifactStore | None)
assert_type(allow("read_*"), Rule)
assert_type(load_skills("skills"), list[Skill])
assert_type(sign_request("ed25519:…", "GET", "/threads", audience="https://gateway.example"), dict[str, str])
assert_type(Secrets({"BANK_KEY": "k"}), Secrets)


book = tool(effect="read")(Ledger().book)
assert_type(book, Tool[int])


class Counted(Middleware):
    """Counts calls."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Add a header."""
        result = await proceed(headers={"X-Agent": call.agent})
        assert_type(result.usage.prompt_tokens, int)
        return result

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Count a call."""
        assert_type(await call.step(), int)
        self.ledger.book(call.tool)
        if not call.key:
            raise CallRefused("no key")
        return await proceed()


def counted(ledger: Ledger) -> Counted:
    """Middleware with a resource."""
    return Counted(ledger)


forgetful = Catalog(
    agents=[dunner],
    tools=[*tools, *workspace_tools(), *memory_tools(), collect, book],
    resources=[ledger, bank, counted],
    middleware=[Counted, Counted(Ledger())],
    threads=InMemoryThreads(),
    artifacts=InMemoryArtifacts(),
    memories=InMemoryMemories(),
)


assert_type(forgetful.with_resources(ledger), Catalog)


async def test_dunning() -> None:
    """A test of the agent."""
    async with agent(catalog, [call("pay", invoice="7"), say("Paid.")], secrets={"BANK_KEY": "k"}) as run:
        assert_type(run, ScriptedRun)
        assert_type(await run.task("Pay."), Result)
        assert_type(await run.approve(by="bob", reason="fine"), Result)
        assert_type(await run.effects(), list[CallRecord])
        assert_type(run.thread, Thread)


async def test_open_invoices() -> None:
    """A tool can be called as the original function."""
    assert_type(await open_invoices("4711", limit=1), list[str])


def script(conversation: Conversation) -> Reply:
    """Play the LLM's part."""
    assert_type(conversation.last_user_message, str)
    return say("Done.")


with ScriptedLLM(steps([call("greet", name="you"), say("Done.")])) as llm:
    assert_type(llm.base_url, str)


async def program() -> None:
    """Use the client."""
    async with Client.connect(task_queue="mine", by="alice") as client:
        assert_type(client, Client)
        thread = await client.start("Remind.", agent="dunning", thread="dunning-1", idle_limit=60)
        assert_type(thread, Thread)
        result = await thread.result(until="attention", timeout=60)
        assert_type(result, Result)
        assert_type((result.text, result.steps, result.usage.prompt_tokens), tuple[str, int, int])
        assert_type(await thread.state(), ThreadState)
        assert_type(await thread.pending(), tuple[PendingRequest, ...])
        assert_type(await thread.tree(), ThreadTree)
        assert_type([need.thread for need in result.attention], list[str])
        assert_type([message.at for message in await thread.messages()], list[datetime | None])
        await client.start("Report.", unattended=True)
        await client.start("Report.", when_blocked="fail")
        await client.schedules.add("reports", "Report.", every=3_600, unattended=True)
        assert_type(await client.threads(status="blocked"), list[ThreadSummary])
        async for event in thread.events(follow=True):
            if event.type == "tool_call_requested":
                assert_type(event.call.name, str)
        for message in await thread.messages():
            if message.role == "assistant":
                assert_type(message.text, str)
        assert_type((await thread.decide("1", "approve", by="bob")).outcome, str)
        assert_type((await thread.say("Thanks.")).run_id, str | None)
        assert_type((await thread.retry()).counts, bool)
        assert_type((await thread.cancel("why")).explanation, str)
        assert_type(await client.schedules.add("nightly", "Remind.", cron="0 7 * * *"), ScheduleState)
        assert_type(await client.schedules.trigger("nightly"), Thread | None)


with SyncClient.connect(task_queue="mine", by="alice") as sync:
    assert_type(sync, SyncClient)
    dunning = sync.start("Remind.", thread="dunning-1")
    assert_type(dunning, SyncThread)
    assert_type(dunning.result(until="end"), Result)
    assert_type(dunning.result(until="answer"), Result)
    assert_type(dunning.tree(), ThreadTree)
    assert_type(dunning.state(), ThreadState)
    assert_type(dunning.pending(), tuple[PendingRequest, ...])
    assert_type(sync.threads(limit=5), list[ThreadSummary])
    assert_type([event.position for event in dunning.events(after=3)], list[int])
    assert_type(dunning.say("Thanks.", by="bob").outcome, str)
    assert_type(dunning.decide("1", "deny").outcome, str)
    assert_type(sync.schedules.list(), list[ScheduleState])
    assert_type(sync.schedules.trigger("nightly"), SyncThread | None)


async def hold(catalog: Catalog) -> None:
    """Hold agents in a program."""
    async with running(catalog, script=[say("Hi.")], by="alice") as client:
        assert_type(client, Client)
    assert_type(await run(catalog, "Remind.", agent="dunning"), Result)
    assert_type(await run(catalog, "Remind.", result=int), int)
    assert_type(await run(catalog, "Remind.", result=int | str), Any)
    assert_type(run_sync(catalog, "Remind.", thread="dunning-1"), Result)
    assert_type(run_sync(catalog, "Remind.", result=int), int)
    with running(catalog) as blocking:
        assert_type(blocking, SyncClient)
