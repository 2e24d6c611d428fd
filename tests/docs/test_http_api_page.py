"""docs/how-to/http-api.md: its commands and its program run as printed there, against a real gateway."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.client.threads import Threads
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from tests.docs.pages import DOCS, files, snippets
from tests.docs.test_client_page import CATALOG, script
from tests.support.rig import PATIENCE, StartRig
from tests.support.serving import served, sha256

PAGE = DOCS / "how-to/http-api.md"
FILES = files(PAGE)
COMMANDS = {each.code[2:].partition("\n")[0]: each.code for each in snippets(PAGE) if each.code.startswith("# ")}
"""The blocks of commands, by the comment in their first line."""
SCOPES: tuple[Scope, ...] = tuple(yaml.safe_load(FILES["tokens.yaml"])["tokens"][0]["scopes"])


async def run(*command: str, **environ: str) -> str:
    """Run a command, and return its output."""
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environ}, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(PATIENCE):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
async def test_the_commands_and_the_program(rig: StartRig, tmp_path: Path) -> None:
    """The commands start, wait, approve and read with curl; then JavaScript does the same, if Node is installed."""
    tokens = CallersFile(tokens=(Token(name="shop", sha256=sha256("of-shop"), scopes=SCOPES),))
    async with rig(CATALOG, script) as worker:
        threads = Threads(worker.client, task_queue=worker.task_queue)
        async with served(build_app(threads, Callers(tokens))) as url:

            async def say(*names: str, **more: str) -> list[Any]:
                command = "".join(map(COMMANDS.__getitem__, names))
                command = command.replace("refund-4711", f"refund-4711-{worker.task_queue}")
                out, values = await run("bash", "-ec", command, GATEWAY=url, TOKEN="of-shop", **more), []
                while out := out.strip():
                    value, end = json.JSONDecoder().raw_decode(out)
                    values.append(value)
                    out = out[end:]
                return values

            (started,) = await say("start")
            assert started["by"] == "shop"
            (asking,) = await say("wait")
            assert asking["status"] == "waiting_approval"
            digest = asking["pending"][0]["digest"]
            if shutil.which("jq"):
                shown, decided = await say("show", "approve")  # the first sets the digest
                assert shown["digest"] == digest
            else:
                (decided,) = await say("approve", DIGEST=digest)
            assert decided["outcome"] == "accepted"
            result, said = await say("read")
            assert (result["status"], result["text"]) == ("completed", "refunded 500 cents of order 4711")
            assert [each["role"] for each in said["messages"]] == ["user", "assistant", "tool", "assistant"]

            if node := shutil.which("node"):
                (tmp_path / "refund.mjs").write_text(FILES["refund.mjs"], encoding="utf-8")
                order = str(int(worker.task_queue[-6:], 16))
                printed = await run(node, str(tmp_path / "refund.mjs"), order, GATEWAY=url, TOKEN="of-shop")
                assert printed == f"completed refunded 500 cents of order {order}\n"
