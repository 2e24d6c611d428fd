"""MCP servers of the official SDK, over stdio and HTTP: content, connections, and what becomes of them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from holdfast import MCP, AudioBlock, ImageBlock, TextBlock
from holdfast.core.authority.server_questions import accept
from holdfast.core.tools.foreign_waits import Resumed
from holdfast.devstack.ports import any_free
from holdfast.mcp.limits import ConnectionLost, NotConnected, ServerError
from tests.support import mcp_tools
from tests.support.mcp_tools import CONTEXT, PROGRAMS, Caller, caller, command
from tests.support.rig import eventually


def shop(folder: Path) -> MCP:
    """Return a shop over stdio with a book of orders in the folder."""
    env = {"SHOP_BOOK": str(folder / "book.txt"), "TOKEN": "${SHOP_TOKEN}"}
    return MCP(
        "shop",
        command=command("shop"),
        env=env,
        effects={"search_*": "read", "wait": "read", "fail": "read"},
        timeout=60,
        confined=False,
    )


@asynccontextmanager
async def shop_over_http(folder: Path) -> AsyncIterator[tuple[MCP, asyncio.subprocess.Process]]:
    """Run a shop over HTTP."""
    port = any_free()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAMS / "shop.py"),
        str(port),
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"SHOP_BOOK": str(folder / "book.txt")},
    )

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await eventually(answers, bool)
        yield MCP("shop", url=f"http://127.0.0.1:{port}/mcp", effects={"search_*": "read"}, timeout=60), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def children() -> set[int]:
    """Return the ids of all processes below this one."""
    return {each.pid for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE}


async def test_content_schemas_and_the_effect_key_come_through(tmp_path: Path) -> None:
    """Schemas arrive whole, each kind of content becomes a block, and the call's `_meta` has the effect key."""
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        parameters = call.tools["shop_order"].spec.parameters
        assert parameters["$defs"]["Address"]["properties"]["country"]["enum"] == ["DE", "FR"]
        word = call.tools["shop_search_items"].spec.parameters["properties"]["word"]
        assert word["description"] == "The word to find."
        assert await call("shop_search_items", word="pen") == "10 x pen"
        text, image, audio, resource, structured = await call("shop_everything")
        assert text == TextBlock(text="here")
        assert image == ImageBlock(data="iVBORw==", media_type="image/png")
        assert audio == AudioBlock(data="iVBORw==", media_type="audio/wav")
        assert resource == TextBlock(text="[resource file:///a.txt]\ninside")
        assert structured == TextBlock(text='{"n": 1}')
        assert await call("shop_order", item="pen", to={"street": "Rue 1", "country": "FR"}) == "ordered pen"
    assert (tmp_path / "book.txt").read_text() == f"pen FR {CONTEXT.key}\n"


async def test_a_server_has_the_declared_variables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a command has PATH and what the catalog declares, and nothing else of the worker's."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers")
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        seen = json.loads(await call("shop_environment"))
    assert seen.keys() - {"LC_CTYPE"} == {"PATH", "SHOP_BOOK", "TOKEN"}
    assert seen["TOKEN"] == "a secret token"


async def test_a_confined_server_writes_to_its_folder_alone(tmp_path: Path) -> None:
    """A confined command serves its tools, and cannot write outside of its folder."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    for folder, written in ((inside, True), (outside, False)):
        server = MCP(
            "shop",
            command=command("shop"),
            env={"SHOP_BOOK": str(folder / "book.txt")},
            folder=inside,
            readable=[PROGRAMS],
            timeout=60,
        )
        async with caller(server) as call:
            if written:
                assert await call("shop_order", item="pen", to={"street": "Rue 1"}) == "ordered pen"
            else:
                with pytest.raises(ServerError):
                    await call("shop_order", item="pen", to={"street": "Rue 1"})
        assert (folder / "book.txt").exists() == written


@pytest.mark.extended
async def test_a_server_that_dies_in_a_call_is_started_again(tmp_path: Path) -> None:
    """The call of a server that dies raises ConnectionLost, never CancelledError; the next call has a new server."""
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        with pytest.raises(ConnectionLost):
            await call("shop_crash", item="pen")
        assert (tmp_path / "book.txt").read_text() == "pen\n", "the call with an effect was sent once"
        assert await call("shop_search_items", word="pen") == "10 x pen"


@pytest.mark.extended
async def test_people_may_answer_after_the_server_has_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of the SDK forgets its question then, and after ten minutes: it is asked again, and gets the answer."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        asked = await call("shop_greet", word="Hello")
    responses = accept(asked.question, "Ann")
    assert isinstance(responses, dict)
    resumed = replace(CONTEXT, pends=True, resumed=Resumed(responses, asked.state))
    monkeypatch.setattr(mcp_tools, "CONTEXT", resumed)
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        assert await call("shop_greet", word="Hello") == "Hello, Ann"


@pytest.mark.extended
async def test_a_cancelled_call_leaves_the_server_to_the_others(tmp_path: Path) -> None:
    """Cancelling one call ends neither its server nor another call."""
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        await call("shop_search_items", word="pen")
        servers = children()
        cancelled, other = (asyncio.create_task(call("shop_wait", seconds=seconds)) for seconds in (60, 0.5))
        await eventually(reading(tmp_path), lambda text: "waits 60" in text)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await other == "waited"
        assert children() == servers


@pytest.mark.extended
async def test_no_process_is_left(tmp_path: Path) -> None:
    """The end of a worker ends its servers, also during a call; so does its death."""
    before = children()
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        waiting = asyncio.create_task(call("shop_wait", seconds=600))
        await eventually(reading(tmp_path), lambda text: "waits" in text)
    with pytest.raises(NotConnected, match="stopping"):
        await waiting
    assert children() == before
    program = """
import asyncio
from holdfast import MCP
from tests.support.mcp_tools import PROGRAMS, caller, command

async def main():
    server = MCP("shop", command=command("shop"), confined=CONFINED, readable=[PROGRAMS], effects={"*": "read"})
    async with caller(server) as call:
        await call("shop_search_items", word="pen")
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    for confined in (True, False):
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program.replace("CONFINED", str(confined)),
            stdout=asyncio.subprocess.PIPE,
            cwd=PROGRAMS.parents[2],
        )
        assert worker.stdout is not None
        assert await worker.stdout.readline() == b"ready\n"
        servers = psutil.Process(worker.pid).children(recursive=True)
        assert servers
        os.kill(worker.pid, signal.SIGKILL)
        await worker.wait()
        await eventually(living(servers), lambda left: not left)


def living(processes: list[psutil.Process]) -> Callable[[], Awaitable[list[psutil.Process]]]:
    """Return a function that returns those processes that live."""

    async def ask() -> list[psutil.Process]:
        return [each for each in processes if _lives(each)]

    return ask


def reading(folder: Path) -> Callable[[], Awaitable[str]]:
    """Return a function that returns the text of the book."""

    async def ask() -> str:
        book = folder / "book.txt"
        return book.read_text() if book.exists() else ""

    return ask


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.extended
async def test_a_server_over_http_that_dies_is_an_error(tmp_path: Path) -> None:
    """A server that dies in a call gives ConnectionLost or an unknown error, never CancelledError; an absent one is not
    reached, and nothing was sent.
    """
    async with shop_over_http(tmp_path) as (server, process), caller(server) as call:
        assert await call("shop_search_items", word="pen") == "10 x pen"
        waiting = asyncio.create_task(call("shop_wait", seconds=600))
        await eventually(reading(tmp_path), lambda text: "waits 600" in text)
        process.kill()
        with pytest.raises((ConnectionLost, ServerError)):
            await waiting
        for _ in range(2):
            with pytest.raises(NotConnected, match="cannot be reached"):
                await call("shop_wait", seconds=0)
        assert call.pinned.name == "shop"


@pytest.mark.extended
async def test_a_connection_is_shared(tmp_path: Path) -> None:
    """Concurrent first calls start one server."""
    before = children()
    async with caller(shop(tmp_path), SHOP_TOKEN="a secret token") as call:
        assert isinstance(call, Caller)
        await asyncio.gather(*(call("shop_search_items", word="pen") for _ in range(20)))
        assert len(children() - before) == 1
