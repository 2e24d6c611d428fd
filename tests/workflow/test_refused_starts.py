"""Starts that a worker rejects: their reasons, and how `show` presents them."""

from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError

from holdfast.cli.screens.thread_screens import show_screen
from holdfast.client.connect import connect, stack_config
from holdfast.client.showing import show_thread
from holdfast.client.start_options import issued
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import run_view
from holdfast.testing import say, steps
from tests.replay.scenarios import CATALOG
from tests.support.attacker import reach
from tests.support.rig import StartRig


@pytest.mark.parametrize(
    "begin",
    [
        {"task": "go", "resume": True},
        pytest.param({"task": {"a": 3}}, marks=pytest.mark.extended),
        pytest.param(None, marks=pytest.mark.extended),
    ],
)
async def test_a_start_that_fails_before_its_first_event_is_shown_like_any_failed_thread(
    rig: StartRig, stack: Stack, begin: dict[str, Any]
) -> None:
    """`show` has the id, the status and the reason, for people and for programs, and reports nothing as unreadable."""
    stranger = await reach(stack)
    async with rig(CATALOG, steps([say("done")])) as r:
        run = await stranger.start_workflow(WORKFLOW, begin, id=f"t-{uuid4().hex[:8]}", task_queue=r.task_queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
        notes: list[str] = []
        view = (await show_thread(Threads(r.client), run.id, note=notes.append)).view
        assert (view["thread"], view["status"], notes) == (run.id, "failed", [])
        reason = " ".join(str(failed.value.cause).partition(": ")[2].split())
        assert reason[:80] in view["result"]
        assert (await r.client.get_workflow_handle(run.id).query("show"))["thread"] == run.id
        shown = show_screen(view, retrying=[], ui=None).plain
        assert shown.startswith(f"{run.id}  failed")
        assert "Why\n" in shown


@pytest.mark.extended
async def test_a_start_under_a_reserved_id_is_not_shown_as_an_archived_branch(rig: StartRig, stack: Stack) -> None:
    """`show` reports that the start failed, and why, and does not present it as an archived branch."""
    stranger, thread = await reach(stack), f"t-{uuid4().hex[:8]}~reset-1"
    async with rig(CATALOG, steps([say("done")])) as r:
        run = await stranger.start_workflow(WORKFLOW, {"task": "go"}, id=thread, task_queue=r.task_queue)
        with pytest.raises(WorkflowFailureError):
            await run.result()
        view = (await show_thread(Threads(r.client), thread, note=print)).view
        shown = show_screen(view, retrying=[], ui=None).plain
        assert (view["thread"], view["status"]) == (thread, "failed")
        assert "this id is reserved for what resets leave behind" in shown
        assert "nothing continues it" not in shown
        assert "--thread" not in view["continue"]["command"]


async def test_a_start_sealed_with_another_stacks_key_names_the_right_key(rig: StartRig, stack: Stack) -> None:
    """The reason names the seal's key and this worker's keys, and not the command that the person has used."""
    theirs = await connect(stack_config(stack), seals=FleetKeys({"dev": bytes(32)}))
    async with rig(CATALOG, steps([say("done")])) as r:
        thread = f"t-{uuid4().hex[:8]}"
        run = await theirs.start_workflow(WORKFLOW, issued(RunInput(task="go")), id=thread, task_queue=r.task_queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
        message = str(failed.value.cause)
        for part in ("names the fleet key 'dev'", "this process has dev", "another stack's key", "HOLDFAST_FLEET_KEYS"):
            assert part in message
        assert "with the command line" not in message
        view = (await show_thread(Threads(r.client), thread, note=print)).view
        assert (view["thread"], view["status"]) == (thread, "failed")
        assert "another stack's key" in view["result"]


CONSTRAINT = {"constraint": 1, "tool": "pay", "scope": "tool", "arguments": "", "until": None, "reason": "locked"}
AUTHORITY = {
    "constraints": [CONSTRAINT],
    "remembered": [{"rule": "1", "tool": "pay", "by": "alice", "call_digest": "c"}],
    "delegated": [{"by": "alice", "to": "bob", "until": "2026-01-02T03:04:05+00:00"}],
    "fork": {"thread": "o", "position": 3, "by": "", "effects_ask": True},
    "paused": {"by": "eve", "reason": "", "since": "2026-01-02T03:04:05Z", "until": None},
    "blocked": {"cause": "c", "message": "m"},
}


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "moved"])
def test_a_closed_thread_is_shown_without_commands_that_would_be_rejected(status: str) -> None:
    """Constraints, rules, delegations, pauses and blocks stay on the screen; the commands are only for open threads."""
    state = run_view(RunState(thread="t")) | AUTHORITY
    shown = show_screen(state | {"status": status, "agent": "clerk"}, retrying=[], ui=None).plain
    commands = (" lift t", " revoke t", " resume t", " retry t", " approve t")
    assert [command for command in commands if command in shown] == []
    assert "Constraint 1  refuses every call of pay" in shown
    open_thread = show_screen(state | {"status": "running", "agent": "clerk"}, retrying=[], ui=None).plain
    assert [command for command in commands[:4] if command not in open_thread] == []
