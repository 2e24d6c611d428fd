"""Questions and tasks of MCP servers in whole runs: people answer, the server gets the answer once, tasks are waits."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import MCP, Agent, Catalog, NotAccepted, Policy, RunCancelled, Secrets, allow
from holdfast.mcp.lock_file import LOCK, write_lock
from holdfast.mcp.pinning import read_lists, with_pinned_tools
from holdfast.testing import agent, call, say
from tests.support.mcp_tools import command

pytestmark = pytest.mark.usefixtures("session_server")


async def asking_catalog(folder: Path) -> Catalog:
    """Return a catalog with a server that asks, which was accepted."""
    server = MCP("desk", command=command("asking"), env={"ASKING_FOLDER": str(folder)}, timeout=60, confined=False)
    write_lock(folder / LOCK, await read_lists([server], Secrets({})))
    clerk = Agent(name="clerk", instructions="", policy=Policy(rules=(allow(),)), tools=["desk_*"])
    return with_pinned_tools(Catalog(agents=[clerk], mcp=[server]), folder)


def book(folder: Path) -> list[str]:
    """Return what the server did."""
    file = folder / "book.txt"
    return file.read_text().splitlines() if file.exists() else []


async def test_people_answer_a_servers_question(tmp_path: Path) -> None:
    """A question becomes a request, an answer that does not fit is rejected, and the server gets the one that fits."""
    catalog = await asking_catalog(tmp_path)
    async with agent(catalog, [call("desk_book", table="T1"), say("Booked.")]) as run:
        assert (await run.task("Book.")).status == "waiting_approval"
        (request,) = await run.pending()
        assert (request.kind, request.answers) == ("question", ("respond", "deny"))
        assert request.preview is not None
        assert request.preview.text.splitlines() == [
            "For whom is T1?",
            "- name (string), required. Your name",
            "- guests (integer)",
        ]
        with pytest.raises(NotAccepted, match="does not fit the form"):
            await run.respond('{"guests": 0}', by="ann")
        assert book(tmp_path) == [], "nothing is sent before there is an answer"
        result = await run.respond('{"name": "Ann", "guests": 2}', by="ann")
        assert result.status == "completed"
        (effect,) = await run.effects()
        assert (effect.status, effect.text) == ("ok", "booked T1")
        (line,) = book(tmp_path)
        assert line == 'booked T1 {"action": "accept", "content": {"guests": 2, "name": "Ann"}} s:T1'


@pytest.mark.extended
async def test_a_question_that_is_denied_or_expires_sends_nothing(tmp_path: Path) -> None:
    """People may decline: the call ends as denied, and its server hears nothing more of it."""
    catalog = await asking_catalog(tmp_path)
    async with agent(catalog, [call("desk_pay", amount=3), say("Not paid.")]) as run:
        await run.task("Pay.")
        (request,) = await run.pending()
        assert request.answers == ("approve", "deny"), "an address takes no answer"
        assert request.preview is not None
        assert "https://pay.example/1?a=b" in request.preview.text.splitlines()
        assert (await run.deny(by="ann", reason="too much")).status == "completed"
        (effect,) = await run.effects()
        assert effect.status == "denied"
        assert "ann declined to answer" in effect.text
    assert book(tmp_path) == []


@pytest.mark.extended
async def test_an_address_and_the_workspace_are_answered_together(tmp_path: Path) -> None:
    """After people have visited the address, the server gets that, and the run's workspace as its root."""
    catalog = await asking_catalog(tmp_path)
    async with agent(catalog, [call("desk_pay", amount=3), say("Paid.")]) as run:
        await run.task("Pay.")
        assert (await run.approve(by="ann")).status == "completed"
        workspace = (await run.state()).workspace
    assert book(tmp_path) == [f"paid 3 accept {Path(workspace).as_uri()}"]


async def test_a_task_is_followed_to_its_end(tmp_path: Path) -> None:
    """A call that continues as a task is a wait: it is polled, asks people, gets their answer, and has its result."""
    catalog = await asking_catalog(tmp_path)
    async with agent(catalog, [call("desk_build", what="house"), say("Built.")]) as run:
        assert (await run.task("Build.")).status == "dormant"
        (tmp_path / "house.task").write_text("input_required")
        assert (await run.skip(timedelta(days=21))).status == "waiting_approval"
        (request,) = await run.pending()
        assert "task house" in request.why
        assert (await run.respond('{"name": "Ann"}', by="ann")).status in ("dormant", "running", "completed")
        result = await run.result()
        if result.status == "dormant":
            result = await run.skip(timedelta(minutes=1))
        assert result.status == "completed"
        (effect,) = await run.effects()
        assert (effect.status, effect.text) == ("ok", "built")
        polls = [event for event in await run.events() if event.type == "wait_polled"]
        assert [event.status for event in polls][:1] == ["ok"]
    lines = book(tmp_path)
    assert lines[0].startswith("begins house ")
    assert sum(line.startswith("begins") for line in lines) == 1, "the call with an effect was sent once"
    answer = json.dumps({"who": {"action": "accept", "content": {"name": "Ann"}}}, sort_keys=True)
    assert f"answered house {answer}" in lines


@pytest.mark.extended
async def test_a_task_is_cancelled_with_its_run(tmp_path: Path) -> None:
    """The end of a run cancels its task, whose outcome is then unknown."""
    catalog = await asking_catalog(tmp_path)
    async with agent(catalog, [call("desk_build", what="house"), say("Built.")]) as run:
        assert (await run.task("Build.")).status == "dormant"
        await run.thread.cancel(reason="no more")
        with pytest.raises(RunCancelled):
            await run.result(until="end")
        (effect,) = await run.effects()
        assert effect.status == "unknown"
    assert book(tmp_path)[-1] == "cancelled house"
