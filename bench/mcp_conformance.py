"""`python -m bench.mcp_conformance`: run the official conformance suite of MCP against a gateway that exposes agents.

The suite is written for a server with tools of its own choice (`test_simple_text`, …), so most of its scenarios cannot
pass here: each is listed with the reason why (`EXPECTED`), and any other failure fails the command. The suite and the
Node that it needs come from npm, by version; without npm, the command says so and does nothing.
"""

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from bench.environment import open_stack
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers
from holdfast.gateway.mcp.exposed import expose
from tests.support.exposed import CALLERS, EXPOSED, PAYS, catalog
from tests.support.rig import start_rig
from tests.support.serving import served

PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "node@22.23.3")
"""The suite, and a Node that has what it imports."""

SECONDS = 600

_TOOL = "it calls a tool of the suite's own; ours are agents"
_RESOURCE = "it reads a resource of the suite's own; ours are of tasks"
_PROMPT = "there are no prompts"

EXPECTED = {
    "completion-complete": "there are no prompts and no arguments to complete",
    "elicitation-sep1034-defaults": _TOOL,
    "elicitation-sep1330-enums": _TOOL,
    "logging-set-level": "the server sends no log messages; the log is the run's",
    "prompts-get-embedded-resource": _PROMPT,
    "prompts-get-simple": _PROMPT,
    "prompts-get-with-args": _PROMPT,
    "prompts-get-with-image": _PROMPT,
    "prompts-list": _PROMPT,
    "resources-read-binary": _RESOURCE,
    "resources-read-text": _RESOURCE,
    "resources-subscribe": "no session outlives its request, so nothing can be subscribed to",
    "resources-templates-read": _RESOURCE,
    "resources-unsubscribe": "no session outlives its request, so nothing can be subscribed to",
    "tools-call-audio": _TOOL,
    "tools-call-elicitation": _TOOL,
    "tools-call-embedded-resource": _TOOL,
    "tools-call-error": _TOOL,
    "tools-call-image": _TOOL,
    "tools-call-mixed-content": _TOOL,
    "tools-call-sampling": _TOOL,
    "tools-call-simple-text": _TOOL,
    "tools-call-with-logging": _TOOL,
    "tools-call-with-progress": _TOOL,
}
"""The scenarios that fail, each with the reason."""


def install(folder: Path) -> str:
    """Install the suite; return why it cannot be, or an empty text."""
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm"
    command = [npm, "install", "--no-fund", "--no-audit", "--prefix", str(folder), *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if done.returncode == 0 else f"npm cannot install {' '.join(PACKAGES)}: {done.stderr.strip()[-300:]}"


def with_token(app: Any, token: str) -> Any:
    """Return the application with a token for each request: the suite sends none."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        headers = [each for each in scope.get("headers", ()) if each[0] != b"authorization"]
        await app({**scope, "headers": [*headers, (b"authorization", f"Bearer {token}".encode())]}, receive, send)

    return call


async def run_suite(stack: Stack, home: Path, suite: Path, results: Path) -> None:
    """Serve two agents, and let the suite test the server."""
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    agents, folder = catalog(), home / "worker"
    folder.mkdir()
    rig = start_rig(
        client,
        agents,
        PAYS,
        worker_client=await connect_stack(stack),
        database_url=stack.database_url,
        folder=folder,
    )
    async with rig as worker:
        threads = Threads(worker.client, task_queue=worker.task_queue)
        app = build_app(threads, Callers(CALLERS), audience="http://gateway.example", exposed=expose(agents, EXPOSED))
        async with served(with_token(app, "of-alice")) as url:
            command = [
                str(suite / "node_modules/node/bin/node"),
                str(suite / "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
                *("server", "--url", f"{url}/mcp", "--output-dir", str(results)),
            ]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            async with asyncio.timeout(SECONDS):
                await process.wait()


def outcomes(results: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each scenario, with the checks that failed."""
    for file in sorted(results.glob("*/checks.json")):
        name = file.parent.name.removeprefix("server-").rsplit("-20", 1)[0]
        checks = json.loads(file.read_text(encoding="utf-8"))
        failed = [each for each in checks if each["status"] == "FAILURE"]
        yield name, [f"{each['id']}: {str(each.get('errorMessage', ''))[:160]}" for each in failed]


def main() -> int:
    """Run the suite, and print what passed and why the rest did not."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as temporary:
        suite, results = Path(temporary) / "suite", Path(temporary) / "results"
        suite.mkdir()
        results.mkdir()
        if why := install(suite):
            print(f"SKIPPED: {why}")
            return 0
        with open_stack() as (stack, home):
            asyncio.run(run_suite(stack, home, suite, results))
        found = dict(outcomes(results))
    passed = [name for name, failed in found.items() if not failed]
    for name, failed in found.items():
        print(f"{'failed' if failed else 'passed'}  {name}  {EXPECTED.get(name, '') if failed else ''}".rstrip())
        for each in failed if name not in EXPECTED else ():
            print(f"        {each}")
    print(f"\n{len(passed)} of {len(found)} scenarios pass ({PACKAGES[0]})")
    return 0 if found and {name for name, failed in found.items() if failed} == EXPECTED.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
