"""A start that brings a conversation along, on a server."""

from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import Agent, Catalog, TaskDiffers, UserMessage
from holdfast.portable.verify import verify_file
from holdfast.testing import Conversation, Reply, agent, say

pytestmark = pytest.mark.usefixtures("session_server")

EARLIER = [{"role": "user", "content": "My order is 4711."}, {"role": "assistant", "content": "Noted."}]


async def test_the_llm_reads_the_conversation_before_the_task_and_the_thread_keeps_it(tmp_path: Path) -> None:
    """The same start finds the thread, one with another conversation does not; forks, exports and `verify` agree."""
    asked: list[list[str]] = []

    def script(conversation: Conversation) -> Reply:
        asked.append([str(message) for message in conversation.messages])
        return say("It is 4711.")

    catalog = Catalog(agents=[Agent(name="helper", instructions="Help.")])
    async with agent(catalog, script) as run:
        thread = await run.client.start("Which order?", thread=f"c-{uuid4().hex[:8]}", conversation=EARLIER)
        assert (await thread.result()).text == "It is 4711."
        await run.client.start("Which order?", thread=thread.id, conversation=EARLIER)
        with pytest.raises(TaskDiffers):
            await run.client.start("Which order?", thread=thread.id, conversation=EARLIER[:1])
        claim, task, _reply = await thread.messages()
        assert isinstance(claim, UserMessage)
        assert isinstance(task, UserMessage)
        assert "My order is 4711." in str(claim.content)
        assert task.content == "Which order?"
        fork = await thread.fork(say="Are you sure?", id=f"{thread.id}-fork")
        await fork.result()
        assert (await fork.messages())[0] == claim
        for each in (thread, fork):
            assert (await each.verify()).verdict != "altered"
            await each.export(tmp_path / f"{each.id}.holdfast")
            assert (await verify_file(tmp_path / f"{each.id}.holdfast")).ok
    for messages in asked:
        claimed = next(n for n, text in enumerate(messages) if "My order is 4711." in text)
        assert claimed < next(n for n, text in enumerate(messages) if "Which order?" in text)
