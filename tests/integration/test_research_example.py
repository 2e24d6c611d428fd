"""The research example: its tools on a real library, its script with real runs, and the demo end to end."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Absent, Amounts, Cannot, Effect, Found, ToolContext, Unknown
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.log.events import AgentEvent
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.examples.research import documents
from holdfast.examples.research import script as scripted
from holdfast.examples.research.catalog import catalog
from holdfast.examples.research.lines import read_lines
from holdfast.examples.research.report import Ending, rows
from holdfast.examples.research.scenario import NARROWER, TASK
from holdfast.examples.research.tools import (
    NoSuchDocument,
    file_finding,
    find_finding,
    findings_of,
    read_document,
    read_findings,
    reports_of,
    search_archive,
    search_documents,
)
from holdfast.testing import Conversation, Reply, ScriptedRun, agent, call
from holdfast.workspace.paths import OutsideWorkspace
from tests.support.demos import play_demo
from tests.support.rig import PATIENCE, eventually

pytestmark = pytest.mark.usefixtures("session_server")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return the example's library."""
    return documents.create(tmp_path / "library")


@pytest.fixture
def context(library: Path) -> ToolContext:
    """Return a tool context for that library."""
    return ToolContext(thread="queue-1", workspace=library, key="key-1", attempt=1)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the delays of script and tools."""
    monkeypatch.setattr(scripted, "THINKING", 0)
    monkeypatch.setenv("HOLDFAST_EXAMPLE_CONFIRM_SECONDS", "1e-9")


def test_a_non_empty_folder_is_left_alone(tmp_path: Path) -> None:
    """The library is created only in an empty folder."""
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="not empty"):
        documents.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_search_finds_documents_by_all_of_its_words(library: Path, context: ToolContext) -> None:
    """An empty query lists all documents; a document added later is found from then on."""
    assert len(search_documents("", context)) == len(list(library.glob("*.md"))) == 8
    assert [hit.name[:7] for hit in search_documents("Incident REPORT", context)] == ["2025-02", "2025-06", "2025-09"]
    assert search_documents("incident unicorn", context) == []
    assert search_documents("soak", context) == []
    documents.deliver(library)
    assert [hit.name for hit in search_documents("soak", context)] == [documents.LATER]
    assert all(hit.title and hit.summary for hit in search_documents("", context))


def test_only_documents_of_the_library_are_read(library: Path, context: ToolContext) -> None:
    """No path or link escapes the library, and an unknown name gets the tool that lists names."""
    (library.parent / "secret.md").write_text("mine")
    (library / "link.md").symlink_to("../secret.md")
    for name in ("../secret", "/etc/passwd", "a/b", "A", ""):
        with pytest.raises(ArgumentsInvalid):
            catalog.tools["read_document"].parse(json.dumps({"name": name}))
    with pytest.raises(OutsideWorkspace):
        read_document("link", context)
    with pytest.raises(NoSuchDocument, match="search_documents lists"):
        read_document("secret", context)


def test_the_archive_cannot_be_searched() -> None:
    """The tool says so on every call."""
    refused = search_archive("vacuum")
    assert isinstance(refused, Cannot)
    assert refused.scope == "everywhere"


async def test_a_finding_is_found_by_its_own_call(library: Path, context: ToolContext) -> None:
    """One line beside the library has the key; another call's check finds nothing."""
    assert find_finding(context) == Absent()
    result = await file_finding("Load", "Enough.", ["2025-12-forecast"], context)
    assert find_finding(context) == Found(result)
    assert [line["key"] for line in read_lines(findings_of(library))] == ["key-1"]
    assert find_finding(dataclasses.replace(context, key="key-2")) == Absent()
    assert [finding.topic for finding in read_findings(context)] == ["Load"]


async def test_a_finding_needs_sources_that_exist(library: Path, context: ToolContext) -> None:
    """A source that the LLM invented is rejected, and nothing is filed."""
    with pytest.raises(NoSuchDocument):
        await file_finding("Load", "Enough.", ["2025-12-forecast", "made-up"], context)
    assert not findings_of(library).exists()


def test_a_truncated_line_leaves_the_outcome_unknown(library: Path, context: ToolContext) -> None:
    """A truncated line does not show whether the finding was filed."""
    findings_of(library).write_text('{"topic": "Lo')
    assert isinstance(find_finding(context), Unknown)


def test_only_publishing_asks() -> None:
    """Only publishing asks, for every agent; the lead's policy, which also judges its sub-agents' calls, agrees."""
    for name in ("lead", "researcher", "reviewer"):
        spec = catalog.spec(name, default_llm="any")
        verdicts = {tool.name: evaluate(spec.policy, ToolUse(tool.name, tool.effect)).verdict for tool in spec.tools}
        assert {tool for tool, verdict in verdicts.items() if verdict != "allow"} <= {"publish_report"}
    spec = catalog.spec("lead", default_llm="any")
    assert evaluate(spec.policy, ToolUse("publish_report", Effect.VERIFIABLE)).verdict == "ask"
    assert evaluate(spec.policy, ToolUse("file_finding", Effect.VERIFIABLE)).verdict == "allow"


async def to_the_night(run: ScriptedRun) -> None:
    """Deliver the event that the lead waits for, and wait until it sleeps overnight."""
    documents.deliver(run.workspace)
    await run.thread.wake(documents.EVENT, data={"topic": "queue"}, id="soak-1")
    await eventually(run.events, lambda events: sum(event.type == "dormancy_began" for event in events) == 2)


NEVER_KILLED = {"workers killed (SIGKILL)", "effects found after a kill and adopted"}
"""The facts that do not hold for a run whose worker is never killed."""


async def ending_of(run: ScriptedRun) -> Ending:
    """Return what the demo would count of a run, the root first."""
    budget = (await run.state()).budget
    assert budget is not None
    logs: dict[str, Sequence[AgentEvent]] = {}
    for _, node in (await run.tree()).walk():
        run.started.append(node.thread)  # `events` reads the latest
        logs[node.thread] = await run.events()
    return Ending(
        logs=logs,
        started=len(logs),
        verified=dict.fromkeys(logs, True),
        kills=[],
        shown={"budget": budget.model_dump()},
        library=run.workspace,
        ledger=[True] * 5,
        scripted=True,
        seconds=0.0,
    )


def nothing_spent(ending: Ending) -> dict[str, Any]:
    """Return what `show` would print about an account that has spent nothing."""
    return {"budget": {"limits": [{**each, "spent": "0"} for each in ending.shown["budget"]["limits"]]}}


def wrong(ending: Ending) -> set[str]:
    """Return the facts that differ from the expected ones."""
    return {row.fact for row in rows(ending) if not row.right}


@pytest.mark.extended
async def test_the_tree_answers_a_narrowed_question() -> None:
    """Sub-agents, an event, a night, an extension, a review and an approval yield one report without the brokers.

    The demo's table counts all of it, and reports what is wrong.
    """
    narrowed = threading.Event()

    def held(conversation: Conversation) -> Reply:
        """Delay every researcher's answer until the task is narrowed."""
        if "file_finding" in conversation.tools:
            narrowed.wait(PATIENCE)
        return scripted.script(conversation)

    async with agent(catalog, held, patience=PATIENCE) as run:
        documents.create(run.workspace)
        waits = asyncio.create_task(run.task(TASK))
        await eventually(lambda: asyncio.sleep(0, run.started), bool)
        await eventually(run.events, lambda events: any(event.type == "subagent_started" for event in events))
        assert (await run.thread.refine("narrow", NARROWER)).outcome == "queued"
        narrowed.set()
        assert (await waits).status == "dormant"

        await to_the_night(run)
        assert [event.limit for event in await run.events() if event.type == "budget_low"] == ["steps"]
        await run.thread.extend(Amounts(steps=10))
        assert (await run.skip(timedelta(hours=14))).status == "waiting_approval"
        result = await run.approve()

        assert result.text.endswith("The brokers are not compared, as asked.")
        assert len([node for _, node in (await run.tree()).walk()]) == 6
        (report,) = read_lines(reports_of(run.workspace))
        assert report["text"].count("[20") == 8
        assert "8 of 8 facts stand in their sources." in report["text"]
        assert report["text"].count("Without the archive") == 2
        assert "outbox" not in report["text"]

        ending = await ending_of(run)
        assert wrong(ending) == NEVER_KILLED
        with findings_of(run.workspace).open("a") as file:
            file.write(findings_of(run.workspace).read_text().partition("\n")[0] + "\n")
        assert wrong(ending) == {*NEVER_KILLED, "  lines in the file, each once"}
        faulty = dataclasses.replace(
            ending, started=7, ledger=[True] * 4 + [False], verified={}, shown=nothing_spent(ending)
        )
        assert wrong(faulty) == {
            *NEVER_KILLED,
            "  lines in the file, each once",
            "runs that Temporal has ever started",
            "rows in the ledger, with an outcome",
            "  logs that `verify` finds intact",
            "  in the root's account, as `show` has it",
        }


@pytest.mark.extended
async def test_without_a_person_the_budget_ends_it_with_a_partial_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers are compared, too, so the steps run out before the report; after an extension it is published."""
    # The next sub-agent's share depends on whether one in the background has ended: here there is none.
    monkeypatch.setattr(scripted, "_run", lambda task, **_: call("run_agent", agent="researcher", task=task))
    async with agent(catalog, scripted.script, patience=PATIENCE) as run:
        documents.create(run.workspace)
        assert (await run.task(TASK)).status == "dormant"
        await to_the_night(run)
        blocked = await run.skip(timedelta(hours=14))
        assert (blocked.status, blocked.blocked and blocked.blocked.cause) == ("blocked", "BudgetSpent")
        assert "What I have so far" in blocked.text
        assert "outbox" in blocked.text

        await run.thread.extend(Amounts(steps=10))
        assert (await run.result()).status == "waiting_approval"
        denied = await run.deny(reason="not without a review")
        assert denied.status == "completed"
        assert "not without a review" in denied.text
        assert not reports_of(run.workspace).exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_is_killed_narrowed_extended_and_finished(tmp_path: Path) -> None:
    """`make demo-tree` ends with every fact right, and leaves nothing running."""
    facts = play_demo("holdfast.examples.research.demo", tmp_path, seconds=540)

    assert facts["started, each once"] == "5, 0 twice"
    assert facts["logs that `verify` finds intact"] == "6"
    assert facts["workers killed (SIGKILL)"] == "4"
    assert facts["effects found after a kill and adopted"] == "4"
    assert facts["rows in the ledger, with an outcome"] == "5, 5"
    assert facts["steps of the lead and its sub-agents"] == "8 + 4 + 4 + 4 + 4 + 3 = 27"
    assert facts["replies of the LLM in all logs"] == "27"
    assert facts["slept, by the run's clock"] == "14 h"
    assert facts["refused in another sub-agent without a call"] == "1"
