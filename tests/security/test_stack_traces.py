"""A stack trace is for people: it is kept without secrets, in bounds, and no LLM reads it."""

from psycopg_pool import AsyncConnectionPool

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.activities.builtin_tools.read_artifact import _References
from holdfast.core.log.events import ReconcileRequested, ToolCallFinished
from holdfast.core.log.references import artifacts_of
from holdfast.core.tools.secrets import Secrets
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import StartRig, events_of, status_of

SECRET = "sk-live-0123456789abcdef"


@tool(effect="read")
def look(depth: int) -> str:
    """Fail with a secret in the message, deep in the stack."""
    if depth:
        return str(look.function(depth - 1))
    raise ValueError(f"cannot sign in with {SECRET}")


@tool(effect="unsafe")
def pay() -> str:
    """Fail after the effect may have happened."""
    raise RuntimeError("connection reset")


async def test_a_stack_trace_is_kept_for_people_and_hidden_from_the_llm(
    rig: StartRig, pool: AsyncConnectionPool
) -> None:
    """The event names an artifact with the redacted end of the trace; the LLM neither sees it nor may read it."""

    def script(conversation: Conversation) -> Reply:
        match len(conversation.results):
            case 0:
                return call("look", depth=400)
            case 1:
                return call("pay")
            case _:
                return say(conversation.results[-1])

    agent = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[look, pay])
    async with rig(Catalog(agents=[agent]), script, secrets=Secrets({"TOKEN": SECRET})) as r:
        run = await r.start("do it")
        await status_of(run, "waiting_approval")
        events = await events_of(run)
        (failed,) = (each for each in events if isinstance(each, ToolCallFinished))
        (asked,) = (each for each in events if isinstance(each, ReconcileRequested))
        assert list(artifacts_of(failed, named=True)) == [failed.stack]
        assert list(artifacts_of(asked, named=True, stacks=False)) == []
        text = (await PostgresArtifacts(pool).get(failed.stack, 0, 1_000_000)).decode()
        assert SECRET not in text
        assert "ValueError: cannot sign in with" in text
        assert len(text) < 21_000
        assert "connection reset" in (await PostgresArtifacts(pool).get(asked.stack, 0, 1_000_000)).decode()
        seen = "".join(request.body.decode() for request in r.llm.requests)
        assert "Traceback" not in seen
        assert failed.stack not in seen


def test_a_reference_to_a_stack_trace_lets_no_llm_read_it() -> None:
    """The address in an event's `stack` gives the agent no access, even if it learns the address."""
    address = f"sha256:{'1' * 64}"
    references = _References(address)
    references.add(ToolCallFinished(number=1, status="failed", content="x", stack=address))
    assert not references.refers
    references.add(ToolCallFinished(number=2, status="ok", content="x", artifact=address))
    assert references.refers
