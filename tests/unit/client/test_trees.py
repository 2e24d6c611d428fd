"""Trees of runs, as people read them: a reader of the root sees its whole tree and nothing else."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast.cli.screens.tree_screens import as_trees, indented_row, tree_screen, with_costs
from holdfast.cli.screens.watch import ROWS_BELOW, subagent_rows
from holdfast.client.prune import is_needed
from holdfast.client.reading.runs import Runs
from holdfast.client.threads import Threads
from holdfast.client.trees import AT_ONCE, Node, pending_of_tree, read_tree
from holdfast.errors import ServerUnreachable, ThreadNotFound, TreeNotRead
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers
from tests.integration.test_gateway import bearer
from tests.integration.test_http_api import FILE, POLICY

JSON = dict[str, Any]
SECRET = "could not connect to postgresql://holdfast:hunter2@10.0.0.7"


def child(thread: str, call: int) -> JSON:
    """Return a sub-agent, as the state of its parent has it."""
    return {"thread": thread, "call": call, "agent": "worker", "status": "open"}


def state(*children: JSON, request: str = "") -> JSON:
    """Return the state of a run."""
    pending = [{"request": request, "tool": "pay", "path": []}] if request else []
    return {"agent": "boss", "status": "running", "step": 1, "subagents": children, "pending": pending}


class FakeThreads(Threads):
    """Threads with known states, which count each read."""

    def __init__(self, states: dict[str, JSON]) -> None:
        self.states = states
        self.read: list[str] = []

    async def state(self, thread: str, **_: Any) -> JSON:
        """Return the state of a thread.

        Raises:
            ServerUnreachable: The thread is unknown; the message has text that no caller may see.
        """
        self.read.append(thread)
        if thread not in self.states:
            raise ServerUnreachable(SECRET)
        return self.states[thread]


FAMILY = {
    "billing-1": state(child("billing-1.1", 1), child("other-7", 2), child("billing-1.3", 3), child("billing-2.4", 4)),
    "billing-1.1": state(child("billing-1.1.1", 1), child("billing-1", 2), request="1"),
    "billing-1.1.1": state(request="1"),
    "billing-2.4": state(request="1"),
    "other-7": state(request="1"),
}
"""A tree with a state that names other people's threads and its own root, and with an unreadable thread."""


async def test_a_tree_has_only_threads_below_its_top() -> None:
    """A state that names an unrelated thread as a sub-agent leads nowhere, and no cycle is followed."""
    threads = FakeThreads(FAMILY)
    tree = await read_tree(threads, "billing-1")
    assert [node.thread for _, node in tree.walk()] == ["billing-1", "billing-1.1", "billing-1.1.1", "billing-1.3"]
    assert len(threads.read) == 4


async def test_a_tree_is_read_within_one_time_limit_and_names_unread_runs() -> None:
    """Timeouts of silent runs do not add up: every answer is read, and each silent run is reported."""
    loop, read = asyncio.get_running_loop(), asyncio.Event()
    clock, late = loop.time, 0.0

    class Silent(FakeThreads):
        async def state(self, thread: str, **_: Any) -> JSON:
            nonlocal late
            if thread == "t.1":
                read.set()
            elif thread != "t":
                await read.wait()
                late = 1_000
                await loop.create_future()
            return await super().state(thread)

    numbers = range(1, 2 * AT_ONCE)
    threads = Silent({"t": state(*(child(f"t.{n}", n) for n in numbers)), "t.1": state(request="1")})
    loop.time = lambda: clock() + late  # type: ignore[method-assign]  # nothing here waits for real time
    try:
        pending, unread = await pending_of_tree(threads, "t", note=print)
    finally:
        loop.time = clock  # type: ignore[method-assign]
    assert [each["thread"] for each in pending] == ["t.1"]
    assert sorted(unread) == sorted(f"t.{n}" for n in numbers if n > 1)
    assert all(isinstance(error, TreeNotRead) and f"show {thread}" in str(error) for thread, error in unread.items())


async def test_after_the_first_silence_histories_are_read_at_once() -> None:
    """Histories are read at once only after a timeout, because each timeout costs seconds."""
    reads: list[bool] = []

    class Unavailable(FakeThreads):
        async def state(self, thread: str, *, note: Any = None, use_worker: bool = True, **_: Any) -> JSON:
            reads.append(use_worker)
            if use_worker and note:
                note("no worker answers")
            return await super().state(thread)

    family = {"t": state(*(child(f"t.{n}", n) for n in (1, 2))), "t.1": state(), "t.2": state()}
    for note, expected in ((print, [True, False, False]), (None, [True, True, True])):
        reads.clear()
        await read_tree(Unavailable(family), "t", note=note)
        assert reads == expected


async def test_a_tenant_sees_through_a_tree_neither_other_threads_nor_errors_of_drivers() -> None:
    """The token of `billing-` reads the requests of its tree; an unreadable thread is reported in our own words."""
    threads = FakeThreads(FAMILY)
    transport = httpx2.ASGITransport(app=build_app(threads, Callers(FILE, POLICY)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as http:
        answer = await http.get("/threads/billing-1/pending", headers=bearer("of-billing"))
        foreign = await http.get("/threads/other-7/pending", headers=bearer("of-billing"))
    assert answer.status_code == 200, answer.text
    assert [each["thread"] for each in answer.json()["pending"]] == ["billing-1.1", "billing-1.1.1"]
    assert [each["thread"] for each in answer.json()["unanswered"]] == ["billing-1.3"]
    assert not [word for word in ("other-7", "hunter2", "10.0.0.7", "billing-2") if word in answer.text]
    assert foreign.status_code in (403, 404)
    assert "other-7" not in threads.read


def test_no_row_hides_behind_a_claimed_root() -> None:
    """Any start may set `HoldfastRoot`; each row is still listed once, and true sub-agents come below their parent."""
    claims = [
        ("a", ""),
        ("a.1", "a"),
        ("a.1.2", "a"),
        ("a.1.9", "a.1"),
        ("b", "b"),
        ("c.1", "d"),
        ("d", "c"),
        ("a.x", "a"),
    ]
    rows = [{"thread": thread, "root": root} for thread, root in claims]
    ordered = as_trees(rows)
    assert sorted(row["thread"] for row in ordered) == sorted(thread for thread, _ in claims)
    assert [row["thread"] for row in ordered][:3] == ["a", "a.1", "a.1.2"]
    assert [row["depth"] for row in ordered][:3] == [0, 1, 2]
    assert indented_row(ordered[2])["thread"] == "    a.1.2"


def test_a_tree_has_each_runs_own_cost() -> None:
    """The cost is by list price, in tokens if there is no price, and empty if the run is unreadable."""
    used = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "cached_tokens": 0}
    unpriced = Node("t.1", "worker", "running", usage=used, llm="homemade")
    unread = Node("t.2", "worker", "running", error=ServerUnreachable("away"))
    tree = Node("t", "boss", "running", usage=used, llm="gpt-5-mini", children=[unpriced, unread])
    first, second, third, _ = tree_screen(tree).plain.splitlines()
    assert first.endswith("step 0, $0.2500")
    assert second.endswith("step 0, 1,000,000 tokens")
    assert third.endswith("step 0")
    view = with_costs(tree.view())
    assert (view["usage"], view["cost"]) == (used, 0.25)
    assert [(child["usage"], child["cost"]) for child in view["children"]] == [(used, None), (None, None)]


def test_a_tree_on_the_terminal_escapes_foreign_texts() -> None:
    """Thread ids, names and errors come from others and are escaped."""
    evil = "x\x1b]0;owned\x07\r\ny"
    asking: JSON = {"request": evil, "tool": evil}
    broken = Node(f"{evil}.1", evil, evil, error=ServerUnreachable(evil))
    text = tree_screen(Node(evil, evil, evil, pending=[asking], children=[broken])).plain
    assert not {"\x1b", "\x07", "\r"} & set(text)
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize("count", [3, 500])
def test_the_live_view_has_room_for_the_run_itself(count: int) -> None:
    """Sub-agents that ask for something come first; the rest are only counted."""
    runs = [(1, Node(f"t.{n}", "worker", "running")) for n in range(1, count)]
    runs.append((1, Node(f"t.{count}", "worker", "waiting_approval", pending=[{"request": "1", "tool": "pay"}])))
    lines = [line.plain for line in subagent_rows(runs, thread="t")]
    assert len(lines) <= ROWS_BELOW
    assert any("request 1: pay" in line for line in lines)
    assert (f"{count} sub-agents in all" in lines[-1]) == (count > ROWS_BELOW)


@pytest.mark.parametrize(
    ("thread", "needed"), [("p.1.2", True), ("p.1", True), ("p", True), ("q.1", False), ("p.x", False)]
)
async def test_a_sub_agent_is_not_pruned_while_a_run_above_it_is_open(thread: str, needed: bool) -> None:
    """Its parent may still read its answer, and the grandparent the parent's."""

    async def describe(thread: str, **_: Any) -> Any:
        if thread != "p":
            raise ThreadNotFound(thread)
        return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING)

    assert await is_needed(cast(Runs, SimpleNamespace(describe=describe)), thread) == needed
