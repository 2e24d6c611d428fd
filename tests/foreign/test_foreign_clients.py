"""A client of the official TypeScript SDK gives an agent a task over HTTP (`make test-mcp`)."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.exposed import site
from tests.support.rig import StartRig, eventually

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_of_the_typescript_sdk_waits_for_an_approval(rig: StartRig, mode: str) -> None:
    """By the newest protocol and by an older one, it sees the agents and the tool `result`, which waits for a person
    who decides elsewhere, and then has the result.
    """
    if shutil.which("node") is None or not (HERE / "node_modules" / "@modelcontextprotocol" / "client").is_dir():
        pytest.skip("the client is not installed: `make test-mcp` installs and runs it")
    async with site(rig) as gateway:
        program = await asyncio.create_subprocess_exec(
            *("node", str(HERE / "mcp_client.mjs"), f"{gateway.url}/mcp", "of-alice", mode),
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        try:
            tools, began = [json.loads(await program.stdout.readline()) for _ in range(2)]
            assert tools == {"tools": ["clerk", "quoter", "result"]}
            await approve(gateway.url, began["thread"])
            *waits, done, wrong = [json.loads(line) async for line in program.stdout]
            assert await program.wait() == 0
        finally:
            if program.returncode is None:
                program.kill()
    assert {each["waits"] for each in waits} <= {"running", "waiting_approval"}
    assert (done["error"], done["text"], done["structured"]["status"]) == (False, "Paid.", "completed")
    assert wrong == {"rejected": True}


async def approve(url: str, thread: str) -> None:
    """Approve the run's only request, by the gateway's API."""
    headers = {"Authorization": "Bearer of-alice"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60) as http:

        async def pending() -> list[dict[str, Any]]:
            return list((await http.get(f"/threads/{thread}/pending")).json()["pending"])

        (request,) = await eventually(pending, bool)
        body = {"decision": "approve", "request": request["request"], "digest": request["digest"]}
        (await http.post(f"/threads/{thread}/decisions", json=body)).raise_for_status()
