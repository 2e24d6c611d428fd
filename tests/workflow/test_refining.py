"""Refinements of the task on a real server: recorded, replayed, and read by programs."""

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from holdfast.api.thread import Thread
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.thread_screens import list_screen, show_screen
from holdfast.client.listing import list_threads
from holdfast.client.threads import Threads
from holdfast.core.log.events import MessageTaken, TaskRefined
from holdfast.errors import NotAccepted
from holdfast.testing import Conversation, Reply, call, hang, say
from tests.replay.scenarios import CATALOG, SCENARIOS, refined
from tests.support.rig import PATIENCE, StartRig, check_thread, eventually, skip, status_of
from tests.unit.core.temporal.test_history import EXPECTED


async def test_a_refined_run_continues_and_replays(rig: StartRig, client: Client) -> None:
    """The open request is approved as before; the history rebuilds the same events."""
    script, _, begin = SCENARIOS["refined"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await refined(run, r)
        events = await check_thread(client, run)
        assert [event.type for event in events] == EXPECTED["refined"].split()
        refinements = [event for event in events if isinstance(event, TaskRefined)]
        assert [(event.refinement, event.kind) for event in refinements] == [
            (1, "narrow"),
            (2, "correct"),
            (3, "rescope"),
        ]
        taken = {event.message for event in events if isinstance(event, MessageTaken)}
        assert taken == {event.position for event in refinements}
        lines = [event_summary(event.model_dump(mode="json")) for event in events]
        assert "refinement 1, narrow, by alice (claimed): only a and b" in lines


@pytest.mark.extended
async def test_programs_and_the_command_line_refine_and_show_it(rig: StartRig, client: Client) -> None:
    """The task stays readable, with each refinement after it; a closed thread names the command that continues it."""

    def script(conversation: Conversation) -> Reply:
        return say(f"answer to: {conversation.last_user_message.rpartition('> ')[2]}")

    async with rig(CATALOG, script) as r:
        run = await r.start("Look at all of it", idle_limit=60.0)
        await status_of(run, "waiting_message")
        threads = Threads(client, task_queue=r.task_queue)
        thread = Thread(run.id, threads=threads, by="alice")
        assert (await thread.refine("narrow", "only a")).outcome == "accepted"
        state = await eventually(thread.state, lambda state: state.result == "answer to: only a")
        (refinement,) = state.refinements
        assert (state.task, refinement.kind, refinement.text, refinement.by) == (
            "Look at all of it",
            "narrow",
            "only a",
            "alice",
        )
        screen = show_screen(await threads.state(run.id), retrying=[], ui=None).plain
        assert "Task       Look at all of it\nRefined    1, narrow, by alice (claimed), " in screen
        assert "           only a\n" in screen
        await run.cancel()
        await eventually(run.describe, lambda found: found.status is WorkflowExecutionStatus.CANCELED)
        with pytest.raises(NotAccepted, match=f"say {run.id}") as late:
            await thread.refine("narrow", "only b")
        assert late.value.outcome == "too_late"


@pytest.mark.extended
async def test_a_list_marks_refined_threads(rig: StartRig, client: Client) -> None:
    """Open and completed threads are marked, because the task alone is incomplete."""
    async with rig(CATALOG, lambda _: say("done")) as r:
        run = await r.start(idle_limit=3_600.0)
        await status_of(run, "waiting_message")
        threads = Threads(client, task_queue=r.task_queue)
        await Thread(run.id, threads=threads, by="alice").refine("narrow", "only a")
        await skip(client, run, hours=2)
        await run.result()

        async def rows() -> list[dict[str, object]]:
            return [row for row in await list_threads(threads) if row["thread"] == run.id]

        result = await eventually(rows, lambda rows: bool(rows and rows[0]["refinements"]))
        assert result[0]["refinements"] == 1
        assert "(refined) all of it" in list_screen([{**result[0], "task": "all of it"}]).plain


@pytest.mark.extended
async def test_an_interrupt_abandons_the_llm_call(rig: StartRig) -> None:
    """The LLM is called again at once, with the refinement after everything that it was sent before."""

    def script(conversation: Conversation) -> Reply:
        return say("done") if "> stop" in str(conversation.messages[-1]) else hang()

    async with rig(CATALOG, script) as r:
        run = await r.start()
        await eventually(lambda: run.query("state"), lambda state: bool(state["agent"] and r.llm.requests))
        thread = Thread(run.id, threads=Threads(r.client, task_queue=r.task_queue), by="alice")
        assert (await thread.refine("rescope", "stop", when_busy="interrupt")).outcome == "interrupting"
        assert (await thread.result(timeout=PATIENCE)).text == "done"


async def test_a_refinement_that_is_sent_twice_counts_once(rig: StartRig) -> None:
    """A client sends it as a signal if no worker has answered the update: the id is the same."""
    async with rig(CATALOG, lambda c: call("look", at="a") if not c.replies else say("done")) as r:
        run = await r.start(idle_limit=60.0)
        await status_of(run, "waiting_message")
        payload = {"kind": "narrow", "text": "only a", "by": "alice", "id": "x"}
        for _ in range(2):
            await run.signal("refine", payload)
        state = await eventually(lambda: run.query("state"), lambda state: state["step"] == 3)
        assert len(state["refinements"]) == 1
        await run.cancel()
