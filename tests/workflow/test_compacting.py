"""Compaction on request, on a real server."""

from temporalio.client import Client

from holdfast.api.thread import Thread
from holdfast.client.threads import Threads
from tests.replay.scenarios import CATALOG, SCENARIOS, asked
from tests.support.rig import StartRig, check_thread


async def test_a_waiting_run_is_compacted_at_once_and_replays(rig: StartRig, client: Client) -> None:
    """The log names the requester; the signal that came too late is rejected; the history rebuilds the same events."""
    script, _, begin = SCENARIOS["compacted_on_request"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await asked(run, r)
        events = await check_thread(client, run)
        compacting = [each.type for each in events if "comp" in each.type or each.type == "signal_rejected"]
        assert sorted(compacting) == ["compaction_requested", "context_compacted", "signal_rejected"]
        thread = Thread(run.id, threads=Threads(client, task_queue=r.task_queue), by="alice")
        assert (await thread.state()).warning == ""
