"""Metrics of a worker: what Prometheus scrapes, with bounded labels and without content."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack
from holdfast.devstack.ports import any_free
from holdfast.errors import SettingsError
from holdfast.telemetry.metrics.names import METRICS
from tests.support.keeping import new_pool
from tests.support.rig import environ_of

ROOT = Path(__file__).parents[2]

PROGRAM = '''
import asyncio, sys, urllib.request
import holdfast
from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.telemetry.metrics import observing
from holdfast.testing import call, say

observing.EVERY_SECONDS = 0.2

@tool(effect="read")
def look(path: str) -> str:
    """Look.

    Args:
        path: Where.
    """
    if path == "MARKED-missing":
        raise ValueError("MARKED-error")
    return "MARKED-result"

@tool(effect="unsafe")
def pay(note: str) -> str:
    """Pay.

    Args:
        note: Why.
    """
    return "paid"

policy = Policy(rules=(allow("look"), ask("pay")))
clerk = Agent(name="clerk", instructions="MARKED", tools=[look, pay], policy=policy)
replies = [
    *(call("look", path="MARKED-path"), call("look", path="MARKED-missing")),
    *(call("pay", note="MARKED-note"), say("ok")),
]

def scraped():
    return urllib.request.urlopen(sys.argv[1]).read().decode()

async def main():
    catalog = Catalog(agents=[clerk])
    async with holdfast.running(catalog, script=replies, task_queue=sys.argv[2], home=sys.argv[3]) as client:
        thread = await client.start("MARKED-task", thread="MARKED-thread-" + sys.argv[2])
        await thread.result(until="attention")
        for _ in range(300):
            await asyncio.sleep(0.1)
            text = await asyncio.to_thread(scraped)
            if 'holdfast_requests_open' in text and 'holdfast_runs{' in text and "holdfast_requests_oldest" in text:
                lines = [l for l in text.splitlines() if l.startswith("holdfast_requests_oldest_seconds")]
                if float(lines[0].split()[-1]) > 0:
                    break
        print(text, "=" * 9)
        (request,) = await thread.pending()
        await thread.decide(request, "approve", by="MARKED-person")
        await thread.result()
        print(await asyncio.to_thread(scraped))

asyncio.run(main())
'''


@pytest.mark.extended
async def test_a_worker_serves_its_metrics_and_those_of_the_sdk(stack: Stack, tmp_path: Path) -> None:
    """Prometheus gets steps, tokens, tool calls, open requests and their age, and nothing that was said or named."""
    listen = f"127.0.0.1:{any_free()}"
    async with new_pool(stack.database_url) as (url, _):
        database = conninfo_to_dict(url)["dbname"]
        environ = {
            **environ_of(stack),
            "DATABASE_URL": urlsplit(stack.database_url)._replace(path=f"/{database}").geturl(),
            "HOLDFAST_METRICS_LISTEN": listen,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }
        arguments = (f"http://{listen}/metrics", f"measured-{uuid4().hex[:8]}", str(tmp_path / "home"))
        ended = await _run(arguments, environ, tmp_path)
    assert "MARKED" not in ended
    waiting, _, after = ended.partition("=" * 9)
    samples = _samples(after)

    def value(name: str, **labels: str) -> float:
        found = [
            float(number)
            for sample, number in samples.items()
            if sample.split("{")[0] == name and all(f'{key}="{text}"' in sample for key, text in labels.items())
        ]
        assert found, f"{name} {labels} is not among {sorted(samples)}"
        return sum(found)

    assert value("holdfast_steps_total", agent="clerk") == 4
    assert value("holdfast_tool_calls_total", tool="look", status="ok") == 1
    assert value("holdfast_tool_calls_total", tool="look", status="failed") == 1
    assert value("holdfast_tool_calls_total", tool="pay", status="ok") == 1
    assert value("holdfast_tokens_total", type="input") > 0
    assert float(_samples(waiting)["holdfast_requests_oldest_seconds"]) > 0
    assert float(_samples(waiting)["holdfast_requests_open"]) >= 1
    assert value("holdfast_archive_lag_seconds_count") >= 1
    assert "temporal_worker_task_slots_available" in ended
    names = {re.sub("_(count|sum|bucket)$", "", sample.split("{")[0]) for sample in samples}
    assert names <= {each.name for each in METRICS}


def _samples(text: str) -> dict[str, str]:
    """Return our samples in Prometheus's text format, without the label that the SDK adds to each."""
    samples = re.findall(r"^(holdfast_\S+?(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
    return {re.sub(r',?service_name="[^"]*"', "", name).replace("{}", ""): value for name, value in samples}


async def _run(arguments: tuple[str, ...], environ: dict[str, str], folder: Path) -> str:
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return ended.stdout


def test_metrics_listen_where_they_are_told_to(tmp_path: Path) -> None:
    """A name or a missing address is refused: `:9464` would listen everywhere."""
    for wrong in (":9464", "9464", "example.com:9464", "127.0.0.1:0", "127.0.0.1:99999"):
        with pytest.raises(SettingsError, match="HOLDFAST_METRICS_LISTEN"):
            Settings.from_env({"HOLDFAST_METRICS_LISTEN": wrong}, root=tmp_path)
