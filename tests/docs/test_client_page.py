"""The page about the client: its programs run as printed there. The contract for other clients is frozen."""

import asyncio
import json
import os
import re
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import RunInput
from holdfast.testing import Conversation, Reply, call, say
from tests.docs.pages import DOCS, ROOT, files
from tests.support.rig import PATIENCE, Rig, StartRig, environ_of, eventually

PROGRAMS = files(DOCS / "how-to/use-the-client.md")
CONTRACT = (DOCS / "reference/temporal-clients.md").read_text(encoding="utf-8")


@tool(effect="unsafe")
def refund(order: int, cents: int) -> str:
    """Refund money."""
    return f"refunded {cents} cents of order {order}"


CATALOG = Catalog(
    agents=[Agent(name="support", instructions="Help.", policy=Policy(rules=(ask("refund"), allow())), tools=[refund])],
)


def script(conversation: Conversation) -> Reply:
    """Refund if asked to; otherwise repeat the message."""
    if conversation.messages[-1]["role"] == "tool":
        return say(str(conversation.messages[-1]["content"]))
    message = conversation.last_user_message.strip()
    if value := re.match(r"Refund (\d+) cents of order (\d+)", message):
        return call("refund", order=int(value[2]), cents=int(value[1]))
    return say(f"You said: {message}")


@asynccontextmanager
async def program(name: str, *command: str, rig: Rig, stack: Stack, folder: Path) -> AsyncIterator[Process]:
    """Run a program of the docs, as a user would who has set the environment for the rig's worker."""
    (folder / name).write_text(PROGRAMS[name], encoding="utf-8")
    environ = {**os.environ, **environ_of(stack), "DATABASE_URL": stack.database_url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=folder,
        env={**environ, "HOLDFAST_TASK_QUEUE": rig.task_queue},
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def request(url: str, body: Any = None) -> tuple[int, Any]:
    """Send a request; return status and JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # our own server
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except urllib.error.URLError:
        return 0, None


@pytest.mark.extended
async def test_the_web_handler(rig: StartRig, stack: Stack, tmp_path: Path, unused_tcp_port: int) -> None:
    """A form that is sent twice starts one refund; a decision with the digest that was shown lets it happen."""
    url, order = f"http://127.0.0.1:{unused_tcp_port}/refunds", int(uuid4().hex[:6], 16)
    serve = ("-m", "uvicorn", "web:app", "--port", str(unused_tcp_port), "--log-level", "warning")
    async with (
        rig(CATALOG, script) as worker,
        program("web.py", *serve, rig=worker, stack=stack, folder=tmp_path),
    ):

        async def asked(path: str, body: Any = None) -> tuple[int, Any]:
            return await asyncio.to_thread(request, url + path, body)

        async def shown() -> tuple[int, Any]:
            return await asked(f"/{order}")

        assert (await eventually(shown, lambda answer: answer[0] > 0))[0] == 404
        both = await asyncio.gather(*(asked("", {"order": order, "cents": 500}) for _ in range(2)))
        assert both == [(202, f"refund-{order}")] * 2
        assert (await asked("", {"order": order, "cents": 900}))[0] == 409
        _, state = await eventually(shown, lambda answer: answer[1]["pending"])
        (open_,) = state["pending"]
        decision = {"request": open_["request"], "digest": open_["digest"], "decision": "approve"}
        assert (await asked(f"/{order}/decision", {**decision, "digest": "0"}))[0] == 409
        assert await asked(f"/{order}/decision", decision) == (200, "accepted")
        _, state = await eventually(shown, lambda answer: answer[1]["status"] == "completed")
        assert state["result"] == f"refunded 500 cents of order {order}"


@pytest.mark.extended
async def test_the_batch(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Run twice, the batch prints the same answers, from one run for each customer."""
    customers = [uuid4().hex[:8] for _ in range(5)]
    async with rig(CATALOG, script) as worker:
        outputs = []
        for _ in range(2):
            async with program("batch.py", "batch.py", *customers, rig=worker, stack=stack, folder=tmp_path) as batch:
                outputs.append((await batch.communicate())[0].decode().splitlines())
                assert batch.returncode == 0
        assert outputs == [[f"{each} You said: Remind customer {each}." for each in customers]] * 2
        assert len(worker.llm.requests) == len(customers)


async def test_the_chat_loop(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Each line gets its answer, and a call that needs approval is asked about in between."""
    async with (
        rig(CATALOG, script) as worker,
        program("chat.py", "chat.py", rig=worker, stack=stack, folder=tmp_path) as chat,
    ):
        typed_lines = b"hello\nRefund 5 cents of order 1.\ny\nbye\n"
        output, _ = await chat.communicate(typed_lines)
        assert output.decode().splitlines() == [
            "You said: hello",
            "May it call refund with {'cents': 5, 'order': 1}? (y/n)",
            "refunded 5 cents of order 1",
            "You said: bye",
        ]


def test_the_contract_equals_the_frozen_formats() -> None:
    """The contract names the fields of a plain start and of a result, and every query and search attribute."""
    frozen = json.loads((ROOT / "tests/replay/frozen/0.1.0.json").read_text(encoding="utf-8"))
    rows = {row.split("|")[1].strip(): row for row in CONTRACT.split("\n## ")[0].splitlines() if row[:2] == "| "}
    run = frozen["workflows"]["AgentRunWorkflow"]

    expected = {
        "workflow": {frozen["names"]["WORKFLOW"], frozen["names"]["TASK_QUEUE"]},
        "input of a plain start": set(RunInput.PLAIN),
        "result": set(frozen["models"]["RunResult"]),
        "queries": {name for key in run if (name := key.removeprefix("query ")) != key and "(" not in name},
        "search attributes": set(frozen["search attributes"]),
    }
    assert rows.keys() - {""} == expected.keys()
    for row, names in expected.items():
        assert not [name for name in names if f"`{name}`" not in rows[row]], row
