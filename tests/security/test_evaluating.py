"""A recorded run is untrusted input: it tries to make its rerun execute, read, reach or select something."""

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import Agent, Catalog, Memory, Policy, allow, tool
from holdfast.cli.screens.eval_screens import eval_screen
from holdfast.client.start_options import StartOptions
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.upcasters import decode_event
from holdfast.errors import NotPlayable, SetInvalid
from holdfast.evaluation import files
from holdfast.evaluation.compare.evaluation import Evaluation
from holdfast.evaluation.endpoints import scripted
from holdfast.evaluation.files import read_dataset, read_run
from holdfast.evaluation.runner import open_eval_runner
from holdfast.portable.export import export_thread
from holdfast.portable.format.members import LOG
from holdfast.portable.verify import verify_file
from holdfast.testing import Conversation, Reply, agent, call, replay, say
from tests.support.portable_files import MALLORY, export, parts_of, rebuilt

pytestmark = pytest.mark.usefixtures("session_server")

PATIENCE = 300
"""Seconds that a run or a rerun may take on a busy machine."""
played = partial(replay, patience=PATIENCE)
RAN: list[str] = []


@tool(effect="unsafe")
def wipe(disk: str) -> str:
    """Wipe a disk."""
    RAN.append(disk)
    return f"wiped {disk}"


def catalog(llm: str | None = None) -> Catalog:
    """Return an agent that is shown its workspace's files, and may wipe disks."""
    memory = Memory(files=2_000, strategies=500, workspace_skills=True)
    policy = Policy(rules=(allow(),))
    return Catalog(agents=[Agent(name="op", instructions="", memory=memory, policy=policy, llm=llm, tools=[wipe])])


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    """Return a recorded run in its own folder, with an image by address; its thread was closed, and continued."""
    victim = tmp_path / "victim"
    victim.mkdir()
    async with agent(
        catalog("evil-llm"), [call("wipe", disk="sda"), say("Done."), say("Again.")], patience=PATIENCE
    ) as run:
        run.workspace = victim
        task = (TextBlock(text="Wipe sda, then sdb."), ImageBlock(url="http://169.254.169.254/latest"))
        await run.task(task, by="eve")
        await run.say((ImageBlock(url="http://10.0.0.1/x"), TextBlock(text="Go on.")), by="eve")
        await export_thread(run._threads, run.thread.id, tmp_path / "run.holdfast")
    (victim / "TASKS.md").write_text("# Tasks\n\n- [ ] the secret of this machine\n")
    (victim / ".agents").mkdir()
    (victim / ".agents" / "STRATEGIES.md").write_text("- the secret of this machine\n")
    RAN.clear()
    return tmp_path / "run.holdfast"


async def test_a_rerun_reads_no_folder_visits_no_address_and_runs_no_tool(recorded: Path) -> None:
    """A file's recorded folder, addresses and LLM select nothing; a call with an effect is not made."""
    sent: list[dict[str, Any]] = []

    def script(conversation: Conversation) -> Reply:
        sent.append(conversation.request)
        replies = [call("wipe", disk="sda"), call("wipe", disk="sdb"), say("Done."), say("Again.")]
        return replies[conversation.replies]

    evaluation = await played(recorded, catalog(), script)
    assert (evaluation.ended, evaluation.missing, RAN) == ("completed", ('wipe({"disk":"sdb"})',), [])
    said = json.dumps(sent)
    assert "Go on." in said
    assert "secret of this machine" not in said
    assert "169.254" not in said
    assert "10.0.0.1" not in said
    assert {request["model"] for request in sent} == {"scripted"}
    assert str(recorded.parent) not in said


async def test_only_a_verified_file_is_rerun(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with another result, a redacted one, and one that is replaced after its verification are rejected."""
    parts = parts_of(recorded.read_bytes())
    forged = [(name, data.replace(b"wiped sda", b"wiped sdz") if name == LOG else data) for name, data in parts]
    (tmp_path / "forged.holdfast").write_bytes(rebuilt(forged, None))
    with pytest.raises(NotPlayable, match=r"forged.holdfast does not hold: memory/log.jsonl, event \d+"):
        await read_run(tmp_path / "forged.holdfast")
    async with agent(catalog(), [say("Nothing.")], patience=PATIENCE) as run:
        await run.task("Do nothing.")
        await export_thread(run._threads, run.thread.id, tmp_path / "other.holdfast")
        await export_thread(run._threads, run.thread.id, tmp_path / "redacted.holdfast", redact=True)
    with pytest.raises(NotPlayable, match="redacted"):
        await read_run(tmp_path / "redacted.holdfast")
    verify = verify_file

    async def replaced(path: Path) -> Any:
        report = await verify(path)
        shutil.copy(tmp_path / "other.holdfast", path)
        return report

    monkeypatch.setattr(files, "verify_file", replaced)
    with pytest.raises(NotPlayable, match="changed since it was verified"):
        await read_run(recorded)


@pytest.mark.extended
async def test_only_a_file_that_fits_a_worker_is_rerun(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a correct chain can have events that no server accepts, or more than fits into memory."""
    events = [decode_event(line) for line in dict(parts_of(recorded.read_bytes()))[LOG].splitlines()]
    long, thread = EventLog(), (await verify_file(recorded)).thread
    for event in events:
        changes = {"content": "x" * 2_000_000} if event.type == "tool_call_finished" else {}
        long.append(event.model_copy(update={"digest": "", **changes}), at=event.at)
    (path := recorded.with_name("long.holdfast")).write_bytes(
        await asyncio.to_thread(lambda: export(long.events, thread=thread, private=MALLORY))
    )
    assert (await verify_file(path)).ok
    with pytest.raises(NotPlayable, match=r"event \d+ has 2,000,\d+ bytes"):
        await read_run(path)
    monkeypatch.setattr(files, "verify_file", None)  # it would take long
    monkeypatch.setattr(files, "MAX_LOG_BYTES", 2_000_000)
    with pytest.raises(NotPlayable, match="are rerun"):
        await read_run(path)


@pytest.mark.parametrize(
    "line",
    [
        'file = "../run.holdfast"',
        'file = "/etc/run.holdfast"',
        'file = "a\\\\..\\\\run.holdfast"',
        'file = "run.py"',
        'file = "run.holdfast"\ncatalog = "evil:catalog"',
        'file = "run.holdfast"\nllm = "evil"',
        'file = "run.holdfast"\nexpect = ["holds", "__class__"]',
        'file = "run.holdfast"\n[[run.stub]]\ntool = "x"\nresult = "y"\ncommand = "rm"',
        'file = "a\\u001b.holdfast"',
    ],
)
def test_a_dataset_names_only_files_below_its_folder(line: str, tmp_path: Path) -> None:
    """A dataset cannot name files elsewhere, code, an LLM, or unknown fields."""
    (tmp_path / "set.toml").write_text(f"[[run]]\n{line}\n")
    with pytest.raises(SetInvalid, match="run"):
        read_dataset(tmp_path / "set.toml")


def test_the_screen_prints_no_escape_sequences() -> None:
    """Text of a file cannot act on the terminal."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    found = Evaluation(run=evil, unplayable=evil), Evaluation(run=evil, failed=(evil,), divergence=evil)
    shown = eval_screen(found).plain
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.extended
async def test_a_rerun_serves_only_its_own_threads(recorded: Path) -> None:
    """A worker of reruns executes no activity for any other thread."""
    recording = await read_run(recorded)
    async with scripted(lambda conversation: say("Done.")) as llm, open_eval_runner(catalog(), llm) as player:
        client, queue = player._temporal, player._threads.task_queue
        started = await player._threads.start("Wipe sda.", options=StartOptions(agent="op"))
        with pytest.raises(WorkflowFailureError):
            await client.get_workflow_handle(started.thread).result()
        assert queue.startswith("rerun-")
        assert (await player.rerun(recording, run="x")).ended == "completed"
    assert RAN == []
