"""A message with an id counts once: in an open run, when it re-opens a thread, and when a program says it all again."""

from uuid import uuid4

import pytest

from holdfast import Agent, Catalog, NotAccepted
from holdfast.api.client import Client
from holdfast.client.threads import Threads
from holdfast.core.log.events import UserMessageReceived
from holdfast.testing import Conversation, Reply, say
from tests.support.rig import PATIENCE, Rig, StartRig, check_thread

CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=())])


def echo(conversation: Conversation) -> Reply:
    """Repeat what was said last."""
    return say(f"<{conversation.last_user_message}>")


def program_of(worker: Rig) -> Client:
    """Return a program's client of the worker's runs."""
    return Client(Threads(worker.client, task_queue=worker.task_queue, record=worker.threads), by="dana")


async def converse(program: Client, thread: str) -> list[str]:
    """Hold a whole conversation, as a script does whose ids derive from its input; return the answers."""
    run = await program.start("one", thread=thread, idle_limit=3600)
    answers = [(await run.result(until="attention", timeout=PATIENCE)).text]
    for number, words in enumerate(("two", "three")):
        await run.say(words, id=f"{thread}-{number}")
        answers.append((await run.result(until="attention", timeout=PATIENCE)).text)
    return answers


async def test_a_script_that_is_run_again_says_nothing_twice(rig: StartRig) -> None:
    """Its start and its messages count once; a message under a used id is refused, not taken for the first."""
    async with rig(CATALOG, echo) as worker:
        program, thread = program_of(worker), f"talk-{uuid4().hex[:8]}"
        assert await converse(program, thread) == ["<one>", "<two>", "<three>"]
        assert (await converse(program, thread))[-1] == "<three>"
        run = program.thread(thread)
        assert (await run.say("two", id=f"{thread}-0")).outcome == "duplicate"
        with pytest.raises(NotAccepted, match="take another id") as refused:
            await run.say("four", id=f"{thread}-0")
        assert refused.value.outcome == "id_taken"
        found = await worker.client.get_workflow_handle(thread).describe()
        events = await check_thread(worker.client, worker.client.get_workflow_handle(thread, run_id=found.run_id))
        said = [(event.content, event.id) for event in events if isinstance(event, UserMessageReceived)]
        assert said == [("one", ""), ("two", f"{thread}-0"), ("three", f"{thread}-1")]
        await run.cancel()


@pytest.mark.extended
async def test_a_message_reopens_a_closed_thread_once(rig: StartRig) -> None:
    """Its id is in the log as that of the new run's task, so neither the closed nor the open thread takes it again."""
    async with rig(CATALOG, echo) as worker:
        program, thread = program_of(worker), f"talk-{uuid4().hex[:8]}"
        run = await program.start("one", thread=thread, idle_limit=0)
        await run.result(timeout=PATIENCE)
        assert (await run.say("two", id="again")).outcome == "reopened"
        assert (await run.result(timeout=PATIENCE)).text == "<two>"
        assert (await run.say("two", id="again")).outcome == "duplicate"
        with pytest.raises(NotAccepted, match="take another id"):
            await run.say("three", id="again")
        assert len(worker.llm.requests) == 2
