"""A user's catalog, stores and tests, as `mypy --strict` must accept them. Every type is known: none is `Any`."""

from collections.abc import Sequence
from typing import assert_type

from holdfast import (
    Absent,
    Agent,
    Approver,
    ArtifactStore,
    Catalog,
    Effect,
    Found,
    Limits,
    Memory,
    Policy,
    RecordConflict,
    Rule,
    Secrets,
    Skill,
    Terms,
    ThreadStore,
    Tool,
    ToolContext,
    Unknown,
    WorkspacePath,
    allow,
    ask,
    deny,
    load_skills,
    memory_tools,
    sign_request,
    tool,
    workspace_tools,
)
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say, steps


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@tool(effect="read", timeout=5)
async def open_invoices(customer: str, limit: int = 10) -> list[str]:
    """List a customer's open invoices."""
    return [customer] * limit


def find_payment(context: ToolContext) -> Found | Absent | Unknown:
    """Look whether a payment was made."""
    assert_type(context.key, str)
    return Found("receipt") if context.attempt else Absent()


@tool(effect=Effect.VERIFIABLE, check=find_payment, secrets=("BANK_KEY",))
def pay(invoice: str, where: WorkspacePath, context: ToolContext) -> int:
    """Pay an invoice."""
    assert_type(context.secret("BANK_KEY"), str)
    return len(invoice + where)


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
limits, memory = Limits(max_steps=5), Memory(semantic=True)
agent = Agent(name="dunning", instructions="Remind politely.", policy=policy, limits=limits, memory=memory)
tools = [greet, open_invoices, pay]
catalog = Catalog(agents=[agent], tools=[*tools, *workspace_tools(), *memory_tools()], threads=Threads())

assert_type(greet, Tool[str])
assert_type(greet("you"), str)
assert_type(pay, Tool[int])
assert_type(pay.spec.effect, Effect)
assert_type(agent.policy.rules, tuple[Rule, ...])
assert_type(agent.limits.max_steps, int)
assert_type(catalog.agents["dunning"], Agent)
assert_type(catalog.threads, ThreadStore | None)
assert_type(catalog.artifacts, ArtifactStore | None)
assert_type(allow("read_*"), Rule)
assert_type(load_skills("skills"), list[Skill])
assert_type(sign_request("ed25519:…", "GET", "/threads", audience="https://gateway.example"), dict[str, str])
assert_type(Secrets({"BANK_KEY": "k"}), Secrets)


async def test_open_invoices() -> None:
    """A tool is called as the function it was."""
    assert_type(await open_invoices("4711", limit=1), list[str])


def script(conversation: Conversation) -> Reply:
    """The LLM's part."""
    assert_type(conversation.last_user_message, str)
    return say("Done.")


with ScriptedLLM(steps([call("greet", name="you"), say("Done.")])) as llm:
    assert_type(llm.base_url, str)
