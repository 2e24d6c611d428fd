"""Negative capability on a real server: rejected calls, the removal of a constraint, and the view of programs."""

import pytest
from temporalio.client import Client

from holdfast.api.thread import Thread
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.client.threads import Threads
from holdfast.core.log.events import ToolCallFinished
from holdfast.errors import NotAccepted
from holdfast.testing import call, say, steps
from tests.replay.scenarios import CATALOG, SCENARIOS, constrained
from tests.support.rig import StartRig, check_thread, status_of
from tests.unit.core.temporal.test_history import EXPECTED


async def test_a_constraint_rejects_calls_until_a_person_removes_it_and_replays(rig: StartRig, client: Client) -> None:
    """The tool runs once for each constraint; the log names who removed which; the history rebuilds the same events."""
    script, _, begin = SCENARIOS["constrained"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await constrained(run, r)
        events = await check_thread(client, run)
        assert [event.type for event in events] == EXPECTED["constrained"].split()
        ends = {event.number: event for event in events if isinstance(event, ToolCallFinished)}
        assert [ends[number].status for number in sorted(ends)] == ["cannot", "cannot", "ok"] + ["cannot"] * 3 + ["ok"]
        assert [number for number, event in ends.items() if event.scope] == [1, 4, 5]
        assert "invoice 11 is locked" in ends[2].text
        lines = [event_summary(event.model_dump(mode="json")) for event in events]
        assert any(line.startswith("call 5: cannot everywhere") for line in lines)
        assert "constraint 1, by alice (claimed): unlocked" in lines


@pytest.mark.extended
async def test_programs_and_the_command_line_show_and_remove_constraints(rig: StartRig, client: Client) -> None:
    """`state` lists each with its number; `lift` reports the outcome; `show` names the command."""
    async with rig(CATALOG, steps([call("fetch", id=21), say("locked")])) as r:
        run = await r.start(idle_limit=60.0)
        state = await status_of(run, "waiting_message")
        thread = Thread(run.id, threads=Threads(client, task_queue=r.task_queue), by="alice")
        (constraint,) = (await thread.state()).constraints
        assert (constraint.constraint, constraint.tool, constraint.scope) == (1, "fetch", "everywhere")
        assert (constraint.reason, constraint.until) == ("invoice 21 is locked", None)
        screen = show_screen(state, retrying=[], ui=None).plain
        assert "Constraint 1  refuses every call of fetch\n  invoice 21 is locked\n" in screen
        assert f"lift {run.id} 1" in screen
        assert (await thread.lift(1, reason="unlocked")).outcome == "accepted"
        with pytest.raises(NotAccepted, match="no constraint 1 refuses anything"):
            await thread.lift(1)
        assert (await thread.state()).constraints == ()
        await run.cancel()
