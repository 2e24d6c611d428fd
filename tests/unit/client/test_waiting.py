"""When a wait for a thread is over, from the states of its tree: a table, without a server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.api.request_views import PendingRequest
from holdfast.api.views import Attention, Subagent, ThreadState
from holdfast.api.waiting import Until, Waited, need_text
from holdfast.client.trees import Node
from holdfast.config.programs import CLI
from holdfast.core.run.state.state import Blocked
from holdfast.core.run.views.status import run_view
from tests.support.runs import Thread, loaded_thread

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BLOCKED = Blocked(cause="LLMRejected", message="401: no such key")


REQUEST = PendingRequest.model_validate(
    {"request": "1", "kind": "reconcile", "tool": "pay", "arguments": {}, "digest": "d", "spec_hash": "s"}
    | {"effect_key": "k", "epoch": 0, "why": "no answer came", "edited_by": "", "asked_at": NOW, "expires_at": None}
    | {"answers": (), "who": (), "on_expiry": "deny", "veto": (), "quorum": 1, "votes": (), "path": ("t", "t.1")}
)
"""A request about an effect whose outcome is unknown."""


def thread(**more: Any) -> ThreadState:
    """Return the state of an open thread that works."""
    state = ThreadState.model_validate({**run_view(loaded_thread().state), "retrying": []})
    return state.model_copy(update=more)


def child(number: int, *, background: bool = False, status: str = "open") -> Subagent:
    """Return a sub-agent of the thread."""
    fields = {"call": number, "thread": f"t.{number}", "agent": "a", "status": status, "since": NOW}
    return Subagent.model_validate({**fields, "background": background})


def blocked(thread: str, **more: Any) -> Attention:
    """Return a blocked run of the tree."""
    return Attention(thread=thread, agent="a", status="blocked", blocked=BLOCKED, **more)


DELEGATING = {"lifecycle": "delegating", "subagents": (child(1), child(2, background=True))}


@pytest.mark.parametrize(
    ("state", "needs", "over"),
    [
        (thread(), (), set()),
        (thread(status="completed"), (), {"end", "attention", "answer"}),
        (thread(status="waiting_message"), (), {"attention", "answer"}),
        (thread(status="dormant"), (), {"attention", "answer"}),
        (thread(status="blocked", blocked=BLOCKED), (blocked("t"),), {"end", "attention", "answer"}),
        # Below it: `answer` counts only what the run waits for.
        (thread(), (blocked("t.1"),), {"end", "attention"}),
        (thread(**DELEGATING), (blocked("t.1.4"),), {"end", "attention", "answer"}),
        (thread(**DELEGATING), (blocked("t.2"),), {"end", "attention"}),
        (thread(**DELEGATING), (blocked("t.17"),), {"end", "attention"}),
        (
            thread(lifecycle="delegating", subagents=(child(1, status="completed"), child(2, background=True))),
            (blocked("t.2"),),
            {"end", "attention", "answer"},
        ),
        # Unattended: it fails as soon as its tools have ended, unless somebody has to say what happened.
        (thread(status="blocked", blocked=BLOCKED, unattended=True), (), set()),
        (thread(), (blocked("t.1", unattended=True, pending=(REQUEST,)),), {"end", "attention"}),
        # A pause ends by itself, or when its person comes back: the end of the run may be waited for.
        (thread(), (Attention(thread="t.1", agent="a", status="paused"),), {"attention"}),
    ],
)
def test_a_wait_is_over_if_the_run_or_what_it_waits_for_needs_a_person(
    state: ThreadState, needs: tuple[Attention, ...], over: set[Until]
) -> None:
    """Each row has the conditions that it satisfies."""
    kinds: tuple[Until, ...] = ("end", "attention", "answer")
    assert {until for until in kinds if Waited(state, needs).satisfies(until)} == over


def test_the_status_of_a_result_is_that_of_the_sub_agent_for_which_the_wait_ended() -> None:
    """A block before a request, a request before a pause; the run's own status if it does not work."""
    paused = Attention(thread="t.3", agent="a", status="paused")
    assert Waited(thread(), (paused, blocked("t.1"))).status == "blocked"
    assert Waited(thread(), (paused,)).status == "paused"
    assert Waited(thread(status="dormant"), (blocked("t.1"),)).status == "dormant"


def test_each_need_names_the_thread_the_cause_and_the_command() -> None:
    """A person who reads the log can copy the command."""
    assert need_text(blocked("t.1")).endswith(f"fix the cause, then `{CLI.command('retry', 't.1')}` resumes it")
    spent = Attention(
        thread="t.1", agent="a", status="blocked", blocked=Blocked(cause="BudgetSpent", message="the budget has ended")
    )
    assert "extend t.1" in need_text(spent)
    assert "resume t.1" in need_text(Attention(thread="t.1", agent="a", status="paused"))
    assert (blocked("t").cause, spent.cause) == ("LLMRejected", "BudgetSpent")
    kept = blocked("t.1", unattended=True, pending=(REQUEST,))
    assert (kept.cause, "retry" in need_text(kept), "request 1 (pay)" in need_text(kept)) == (
        *("OutcomeUnknown", False),
        True,
    )


def test_an_unattended_run_in_a_block_is_about_to_fail_and_needs_nobody() -> None:
    """The state between the block and the end lasts as long as its tools run."""
    node = Node("t", "a", "blocked", blocked={"cause": "StepLimit", "message": "m"}, unattended=True)
    assert not node.needs_person
    assert Node("t", "a", "blocked", blocked={"cause": "StepLimit", "message": "m"}).needs_person
    assert Node("t", "a", "waiting_approval", pending=[{"request": "1"}], unattended=True).needs_person


def test_the_view_of_a_run_says_whether_it_is_unattended() -> None:
    """A client learns it from the run, and not from the start that it remembers."""
    run = Thread(when_blocked="fail", features=2)
    run.load(2)
    assert ThreadState.model_validate({**run_view(run.state), "retrying": []}).unattended
