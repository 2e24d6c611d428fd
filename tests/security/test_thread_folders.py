"""A thread's folder is its own: no other id leads to it, however similar, and every id has one."""

from pathlib import Path
from uuid import uuid4

import pytest

import holdfast.activities.load_agent as load_agent
from holdfast import Agent, Catalog, Policy, allow, workspace_tools
from holdfast.core.log.events import ToolCallFinished
from holdfast.testing import call, say, steps
from holdfast.workspace.folders import digested_name, earlier_folder, folder_name
from tests.support.rig import StartRig, events_of, reset, tasks_of

IDS = (
    *(
        "acme/1",
        "acme_1",
        "acme 1",
        "acme-1",
        "ACME-1",
        "Acme-1",
        "acme.1",
        ".acme-1",
        "..",
        ".",
        "",
        "a\u202eb",
        "a\x1bb",
    ),
    *("ä", "a\u0308", "é" * 200, "x" * 255, "x" * 254, "../../etc", "/etc", "-rf", ".git", "~", "acme/1/", "acme//1"),
)


def test_no_two_ids_have_one_folder() -> None:
    """The names differ even if a file system ignores case, and each is a plain name of bounded length."""
    names = [folder_name(thread) for thread in IDS]
    assert len({name.casefold() for name in names}) == len(IDS)
    for name in names:
        assert name.isascii()
        assert len(name) <= 100
        assert name[0].isalnum()
        assert not set(name) & set("/\\ \x1b")


def test_nobody_can_choose_an_id_that_is_another_threads_folder() -> None:
    """A folder's name, used as an id, leads to another folder; so does the name that a fork's branch has."""
    for thread in IDS:
        for name in {folder_name(thread), digested_name(thread)} - {thread}:
            assert folder_name(name) not in {folder_name(thread), digested_name(thread)}


def test_a_folder_of_an_earlier_release_is_found_but_not_owned(tmp_path: Path) -> None:
    """The folder that several ids shared is offered to each of them, and the thread's record decides."""
    (tmp_path / "acme_1").mkdir()
    for thread in ("acme/1", "acme_1", "acme 1"):
        assert earlier_folder(tmp_path, thread) == tmp_path / "acme_1"
        assert folder_name(thread) != "acme_1"
    assert earlier_folder(tmp_path, "acme-1") is None
    assert earlier_folder(tmp_path, "ä" * 200) is None


def catalog() -> Catalog:
    """Return an agent that works with files and may do everything."""
    agent = Agent(
        name="a",
        instructions="You write.",
        policy=Policy(rules=(allow(),)),
        tools=list(workspace_tools(confine="never")),
    )
    return Catalog(agents=[agent])


async def test_a_tenant_does_not_read_another_tenants_files(rig: StartRig) -> None:
    """Threads of similar ids, which once shared a folder, get separate folders; so does one with a long id."""
    script = steps([call("list_files"), call("write_file", path="secret.txt", content="mine"), say("done")])
    base = f"acme-{uuid4().hex[:8]}"
    async with rig(catalog(), script) as r:
        for thread in (f"{base}/1", f"{base}_1", f"{base} 1", base + "ä" * 200):
            run = await r.start(workspace=None, thread=thread)
            await run.result()
            listed, written = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
            assert (written.status, "secret" in listed.text) == ("ok", False)


async def test_a_thread_that_is_reset_keeps_the_folder_in_its_record(
    rig: StartRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that began in an earlier release's folder works there again after a reset; another id does not get it."""
    base = uuid4().hex[:8]
    earlier = tmp_path / "workspaces" / f"order_{base}"
    async with rig(catalog(), steps([say("done")])) as r:
        with monkeypatch.context() as patch:
            patch.setattr(load_agent, "folder_name", lambda thread: f"order_{base}")
            run = await r.start(workspace=None, thread=f"order/{base}")
            await run.result()
        assert (await run.query("state"))["workspace"] == str(earlier)
        again = await reset(r, run, to=(await tasks_of(run))[0])
        await again.result()
        assert (await again.query("state"))["workspace"] == str(earlier)
        other = await r.start(workspace=None, thread=f"order_{base}")
        await other.result()
        assert (await other.query("state"))["workspace"] != str(earlier)
