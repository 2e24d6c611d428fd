"""The typed context of a run reaches tools, policies, instructions and sub-agents, and never the LLM by itself."""

import json
from collections.abc import Sequence
from typing import TypeVar

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    Catalog,
    Context,
    ContextInvalid,
    ContextUpdate,
    LLMCall,
    LLMResult,
    Middleware,
    Policy,
    ProceedLLM,
    ProceedTool,
    RunContext,
    RunFailed,
    SecretRef,
    TaskDiffers,
    Template,
    ToolCall,
    ToolContext,
    ToolResult,
    allow,
    ask,
    deny,
    tool,
)
from holdfast.audit.judge.audit import Audit
from holdfast.core.log.events import AgentEvent, AgentLoaded, ContextUpdated, Event, ToolCallFinished
from holdfast.examples.bank.agents import Customer
from holdfast.examples.bank.agents import catalog as bank_catalog
from holdfast.testing import Conversation, Reply, ScriptedRun, agent, call, say, together

pytestmark = pytest.mark.usefixtures("session_server")

EventT = TypeVar("EventT", bound=Event)

ANN = Customer(number="4711", name="Ann", tier="gold")


async def judged(run: ScriptedRun) -> list[AgentEvent]:
    """Return the events of the run, after an audit has found that each follows from those before it."""
    audit, recorded = Audit(run.thread.id), await run.events()
    audit.take(recorded)
    assert audit.fault is None
    return recorded


def of(kind: type[EventT], recorded: Sequence[AgentEvent]) -> list[EventT]:
    """Return the events of one kind."""
    return [event for event in recorded if isinstance(event, kind)]


async def test_a_bank_agent_knows_its_customer_from_the_program_alone() -> None:
    """The bank's agent reads the account of the context, verifies the customer, and only then blocks the card."""
    asked: list[Conversation] = []

    def script(conversation: Conversation) -> Reply:
        asked.append(conversation)
        return [
            together(call("balance"), call("block_card")),
            call("verify", pin="0000"),
            together(call("verify", pin="0815"), call("block_card")),
            call("block_card"),
            say("Done."),
        ][len(asked) - 1]

    async with agent(bank_catalog, script) as run:
        result = await run.task("Block my card, and how much is left?", context=ANN)
        assert result.text == "Done."
        recorded, state = await judged(run), await run.state()
    ended = sorted(of(ToolCallFinished, recorded), key=lambda each: each.number)
    assert [each.status for each in ended] == ["ok", "denied", "ok", "ok", "denied", "ok"]
    assert (ended[0].text, ended[-1].text) == ("123.50 EUR", "The card is blocked.")
    assert state.context == {"number": "4711", "name": "Ann", "tier": "gold", "verified": True}
    assert [each.changes for each in of(ContextUpdated, recorded)] == [{"verified": True}]
    (loaded,) = of(AgentLoaded, recorded)
    assert {"balance", "verify", "block_card", "raise_limit"} <= {each.name for each in loaded.spec.tools}
    assert "talk to Ann, a gold customer" in loaded.spec.instructions
    assert f"{loaded.at:%A, %d %B %Y}" in loaded.spec.instructions
    assert "4711" not in json.dumps([each.request for each in asked])


class Wallet(BaseModel):
    """A context with a secret that the worker holds."""

    owner: str
    limit: float = 100
    key: SecretRef = SecretRef(secret="WALLET_KEY")


class Notes(BaseModel):
    """The part of a wallet's context that another agent wants."""

    owner: str
    language: str = "en"


SEEN: list[object] = []


@tool(effect="unsafe", secrets=("WALLET_KEY", "OTHER_KEY"), writes=("limit",))
def pay(euros: float, wallet: Context[Wallet], context: ToolContext) -> ContextUpdate:
    """Pay."""
    SEEN.append((wallet.owner, wallet.limit, context.secret(wallet.key)))
    return ContextUpdate(f"paid {euros:g}", wallet.model_copy(update={"limit": wallet.limit - euros}))


@tool(effect="read", writes=("limit",))
def steal(wallet: Context[Wallet]) -> ContextUpdate:
    """Change a field that the tool does not declare."""
    return ContextUpdate("mine", {"owner": "eve"})


@tool(effect="read", writes=("limit",))
def leak(wallet: Context[Wallet]) -> ContextUpdate:
    """Change a field to a value that does not fit."""
    return ContextUpdate("mine", {"limit": "unlimited"})


@tool(effect="read")
def whoami(notes: Context[Notes]) -> str:
    """Return the owner."""
    return f"{notes.owner} ({notes.language})"


class Auditor(Middleware):
    """Reads the context around calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Note the owner before an LLM call."""
        self.seen.append(f"llm {(await call.context(Notes)).owner}")
        return await proceed()

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Note the limit before a tool call."""
        if call.tool == "pay":
            self.seen.append(f"{call.tool} {(await call.context(Wallet)).limit:g}")
        return await proceed()


PAYING = Policy(
    rules=(
        allow("pay", when="args.euros <= context.limit && context.owner == 'ann'"),
        ask("pay", when="context.owner == 'bob'"),
        deny("pay", when="context.absent == 1"),
    )
)


def wallets(**more: object) -> Catalog:
    """Return a catalog with an agent that pays, and one that it may run."""
    payer = Agent(
        name="payer",
        instructions=Template("You pay for {{ context.owner }}. It is {{ date }}, and {{ person }} asks."),
        context=Wallet,
        tools=("pay", "steal", "leak"),
        subagents=("scribe",),
        policy=PAYING,
    )
    scribe = Agent(name="scribe", instructions="Write.", tools=("whoami",), context=Notes, description="Writes.")
    return Catalog(agents=[payer, scribe], tools=[pay, steal, leak, whoami], **more)  # type: ignore[arg-type]


SECRETS = {"WALLET_KEY": "w-0123456789", "OTHER_KEY": "o-0123456789"}


@pytest.mark.extended
async def test_tools_change_what_they_declare_from_the_next_step_on() -> None:
    """Calls of one step see the same context; a tool changes only fields that it declares, to values that fit."""
    SEEN.clear()
    auditor = Auditor()
    script = [
        together(call("pay", euros=60), call("pay", euros=50), call("steal"), call("leak")),
        call("pay", euros=60),
        say("Done."),
    ]
    async with agent(wallets(middleware=[auditor]), script, by="ann", secrets=SECRETS) as run:
        await run.task("Pay.", context=Wallet(owner="ann"))
        recorded, state = await judged(run), await run.state()
    ended = sorted(of(ToolCallFinished, recorded), key=lambda each: each.number)
    assert [each.status for each in ended] == ["ok", "ok", "failed", "failed", "denied"]
    assert [("ann", 100, SECRETS["WALLET_KEY"])] * 2 == SEEN
    assert "may not change 'owner'" in ended[2].text
    assert "limit" in ended[3].text
    assert state.context == {"owner": "ann", "limit": 50, "key": {"secret": "WALLET_KEY"}}
    assert auditor.seen == ["llm ann", "pay 100", "pay 100", "llm ann", "llm ann"]
    (loaded,) = of(AgentLoaded, recorded)
    assert loaded.spec.instructions == f"You pay for ann. It is {loaded.at.date()}, and ann asks."
    assert SECRETS["WALLET_KEY"] not in str([event.model_dump_json() for event in recorded])


async def test_an_approval_shows_the_context_and_is_bound_to_it() -> None:
    """People see the context that a call would run with, and their decision covers it."""
    SEEN.clear()
    async with agent(wallets(), [call("pay", euros=1), say("Done.")], secrets=SECRETS) as run:
        await run.task("Pay.", context={"owner": "bob"})
        (request,) = await run.pending()
        assert request.context == {"owner": "bob", "limit": 100, "key": {"secret": "WALLET_KEY"}}
        await run.approve(request)
        await judged(run)
    assert [("bob", 100, SECRETS["WALLET_KEY"])] == SEEN


@pytest.mark.extended
async def test_a_sub_agent_gets_the_context() -> None:
    """A sub-agent has the context of its parent, as far as its own model goes, for policies of both."""

    def script(conversation: Conversation) -> Reply:
        if "Write." in str(conversation.messages[0]):
            return say(conversation.results[0]) if conversation.results else call("whoami")
        return say("Done.") if conversation.results else call("run_agent", agent="scribe", task="Write it down.")

    async with agent(wallets(), script, secrets=SECRETS) as run:
        await run.task("Pay.", context=Wallet(owner="ann"))
        recorded = await judged(run)
        tree = await run.tree()
    (ended,) = [each for each in of(ToolCallFinished, recorded) if each.number == 1]
    assert "ann (en)" in ended.text
    assert len(tree.children) == 1


@pytest.mark.extended
async def test_a_context_that_does_not_fit_ends_the_run() -> None:
    """A start without a required field, with an unknown one, or for an agent without a context ends with the reason."""
    wrong: list[tuple[str, object, str]] = [
        ("payer", None, "owner: Field required"),
        ("payer", {"owner": "ann", "limti": 3}, "limti: unknown field; did you mean 'limit'?"),
        ("payer", {"owner": "ann", "key": "w-0123456789"}, "key: it is a reference"),
        ("payer", {"owner": "ann", "key": {"secret": "HOLDFAST_FLEET_KEYS"}}, "names 1 secret(s) that no tool"),
        ("plain", {"owner": "ann"}, "it has no context"),
    ]
    catalog = wallets()
    plain = Agent(name="plain", instructions="x", tools=())
    catalog = Catalog(agents=[*catalog.agents.values(), plain], tools=catalog.tools.values())
    async with agent(catalog, [say("Done.")], secrets=SECRETS) as run:
        for name, context, why in wrong:
            with pytest.raises(RunFailed) as failed:
                await run.task("Pay.", agent=name, context=context)  # type: ignore[arg-type]
            assert failed.value.cause == "ContextInvalid"
            assert why in str(failed.value)
            assert "w-0123456789" not in str(failed.value)
            await judged(run)


@pytest.mark.extended
async def test_the_same_start_has_the_same_context() -> None:
    """Another context under the same thread id is another start; a closed thread keeps its context, or gets another."""
    async with agent(wallets(), [say("One."), say("Two."), say("Three.")], secrets=SECRETS) as run:
        await run.task("Pay.", context={"owner": "ann"})
        client, thread = run.client, run.thread.id
        with pytest.raises(TaskDiffers):
            await client.start("Pay.", thread=thread, context={"owner": "bob"})
        await client.start("Pay.", thread=thread, context={"owner": "ann"}, agent=None)
        await run.say("And now?")
        assert (await run.state()).context == {"owner": "ann", "limit": 100, "key": {"secret": "WALLET_KEY"}}
        fork = await run.thread.fork(say="And for bob?", context={"owner": "bob", "limit": 7})
        await fork.result()
        assert (await fork.state()).context == {"owner": "bob", "limit": 7, "key": {"secret": "WALLET_KEY"}}
        again = await run.thread.restart()
        await again.result()
        assert (await again.state()).context == {"owner": "ann", "limit": 100, "key": {"secret": "WALLET_KEY"}}


@pytest.mark.extended
async def test_an_agent_whose_function_fails_is_blocked_until_it_works() -> None:
    """A function that raises is called again; then the run is blocked, and `retry` loads the agent again."""
    answers: list[object] = [KeyError("tier")] * 4 + [["nothing"], ["whoami"]]

    def instructions(notes: Context[Notes], run: RunContext) -> str:
        return f"Help {notes.owner} in {run.thread}."

    async def tools() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    scribe = Agent(name="scribe", instructions=instructions, tools=tools, context=Notes)
    async with agent(Catalog(agents=[scribe], tools=[whoami]), [say("Done.")]) as run:
        await run.task("Write.", context=Notes(owner="ann"))
        first = await run.state()
        await run.retry()
        second = await run.state()
        await run.retry()
        recorded = await judged(run)
    assert first.blocked is not None
    assert "raised KeyError" in first.blocked.message
    assert second.blocked is not None
    assert "names tools that are not in the catalog" in second.blocked.message
    (loaded,) = of(AgentLoaded, recorded)
    assert loaded.spec.instructions.startswith("Help ann in ")


async def test_a_context_is_no_text() -> None:
    """A client rejects a context that is no instance and no mapping before anything is started."""
    async with agent(wallets(), [say("Done.")], secrets=SECRETS) as run:
        for context in ("ann", ["ann"], Wallet, 3):
            with pytest.raises(ContextInvalid, match="instance of a pydantic model"):
                await run.task("Pay.", context=context)  # type: ignore[arg-type]
        assert run.started == []
