"""The table in `examples/hardened` lists each role's Temporal calls. A real server counts the calls."""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
from temporalio.api.workflowservice.v1 import GetClusterInfoRequest
from temporalio.client import Client

from holdfast import Policy
from holdfast.config.stack_file import Stack
from holdfast.testing import call, say
from tests.support.people import clerk
from tests.support.rig import StartRig, environ_of, eventually, status_of

ROOT = Path(__file__).parents[2]
SERVICE_CALL = re.compile(r"\b(?:workflow_service|operator_service|service)\.([a-z_]+)\(")
COUNTED = re.compile(
    r'^service_requests\{namespace="(?:default|_unknown_)",operation="(?:Operator)?(\w+)",'
    r'service_name="frontend"\} (\d+)',
    re.MULTILINE,
)
MARK: Final = "GetClusterInfo"
"""A call that our code never makes: once the server reports it, it has counted all earlier ones."""

VERBS: Final = {
    "reader": (
        *(["list"], ["show", "{run}"], ["pending"], ["export", "{run}", "--output", "{folder}/x.holdfast"]),
        *(["verify", "{run}"], ["schedule", "list"]),
    ),
    "starter": (
        *(["start", "pay", "--thread", "t-{run}"], ["say", "t-{run}", "hello"], ["fork", "t-{run}", "--at", "2"]),
        *(["cancel", "t-{run}"], ["restart", "t-{run}"]),
    ),
    "approver": (["pending", "{run}"], ["approve", "{run}", "1", "--by", "ann"]),
    "operator": (["doctor"], ["replay", "{run}"], ["schedule", "add", "s-{run}", "--cron", "0 0 1 1 *", "pay"]),
}


def table() -> dict[str, set[str]]:
    """Return the calls of each role according to the table."""
    text = (ROOT / "examples/hardened/README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines() if line[:1] == "|"]
    (header,) = (row for row in rows if row[0] == "call")
    calls = [row for row in rows if len(row) == len(header) and row[1] in ("✓", "–")]
    return {role: {row[0].strip("`") for row in calls if row[at] == "✓"} for at, role in enumerate(header) if at}


def in_code() -> Iterator[str]:
    """Return the calls that our code makes by name; the SDK's client makes the others."""
    for folder in ("holdfast", "activities"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in SERVICE_CALL.findall(file.read_text(encoding="utf-8")):
                yield "".join(part.capitalize() for part in name.split("_"))


def test_the_table_has_every_call_that_our_code_makes() -> None:
    """Every call is assigned to a role; the gateway has its callers' calls and schedules; only workers poll."""
    roles = table()
    assert set(in_code()) <= set().union(*roles.values())
    callers = roles["reader"] | roles["starter"] | roles["approver"]
    schedules = {each for each in roles["operator"] if "Schedule" in each}
    assert roles["gateway"] == callers | schedules
    polls = {each for each in roles["worker"] if each.startswith(("Poll", "Respond", "Record"))}
    assert not [role for role, calls in roles.items() if role != "worker" and calls & polls]


async def counts(stack: Stack, client: Client) -> Counter[str]:
    """Return how often the server has received each call so far."""
    log = (Path(stack.fleet_keys).parent / "logs/temporal.log").read_text(encoding="utf-8")
    port = re.findall(r"Temporal Metrics: +http://localhost:(\d+)/metrics", log)[-1]

    def read() -> Counter[str]:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:  # from this machine
            found: Counter[str] = Counter()
            for name, number in COUNTED.findall(answer.read().decode()):
                found[name] += int(number)
            return found

    before = (await asyncio.to_thread(read))[MARK]
    await client.workflow_service.get_cluster_info(GetClusterInfoRequest())
    found: Counter[str] = await eventually(lambda: asyncio.to_thread(read), lambda found: found[MARK] > before)
    return found


def carry_out(words: list[str], environ: dict[str, str]) -> None:
    """Run a verb, which must succeed."""
    command = [sys.executable, str(ROOT / "starter.py"), *words]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, (words, ran.stderr)


@pytest.mark.slow
async def test_each_role_makes_only_the_calls_that_the_table_allows(
    rig: StartRig, stack: Stack, client: Client, tmp_path: Path
) -> None:
    """The server counts only allowed calls for a role's verbs, and for the worker that runs meanwhile."""

    def script(conversation: Any) -> Any:
        return say("Done.") if any(each["role"] == "tool" for each in conversation.messages) else call("pay", cents=5)

    roles = table()
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("TEMPORAL_", "OPENAI_"))}
    environ |= environ_of(stack) | {"DATABASE_URL": stack.database_url}
    before = await counts(stack, client)
    async with rig(clerk(Policy()), script) as r:
        environ["HOLDFAST_TASK_QUEUE"] = r.task_queue
        run = await r.start("pay")
        await status_of(run, "waiting_approval")
        found = await counts(stack, client)
        assert set(found - before) - {MARK} <= roles["worker"]
        for role, verbs in VERBS.items():
            before = found
            for words in verbs:
                arguments = [word.format(run=run.id, folder=tmp_path) for word in words]
                await asyncio.to_thread(carry_out, arguments, environ)
            found = await counts(stack, client)
            polls = {each for each in roles["worker"] if each.startswith(("Poll", "Respond", "Record"))}
            calls = set(found - before) - {MARK} - polls
            assert calls <= roles[role], (role, calls - roles[role])
            assert calls
    before = found
    assert set(await counts(stack, client) - before) - {MARK} <= roles["worker"]
