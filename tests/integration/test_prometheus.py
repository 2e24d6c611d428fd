"""Prometheus itself scrapes workers: every alert is seen to fire on it, and every query of the dashboard answers.

Alerts that a worker can reach within a test fire on a worker's own metrics. The others fire on a copy of these metrics
with other values: the copy cannot have a name or a label that no worker exports.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import yaml

from holdfast.config.stack_file import Stack
from holdfast.devstack.ports import any_free
from holdfast.telemetry.metrics.names import METRICS
from tests.support.rig import PATIENCE, environ_of, eventually, migrate_once
from tests.support.servers import open_stack

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docker/prometheus/alerts.yml"
DASHBOARD = ROOT / "docker/grafana/holdfast.json"

PROGRAM = '''
import asyncio, os, sys
from pathlib import Path
import holdfast
from holdfast import Agent, Budget, Catalog, Limits, Policy, allow, ask, tool
from holdfast.telemetry.metrics import observing
from holdfast.testing import call, say, together

observing.EVERY_SECONDS = 0.5
queue, home, held = sys.argv[1:]

@tool(effect="read")
def look(path: str) -> str:
    """Look.

    Args:
        path: Where.
    """
    if path.startswith("missing"):
        raise ValueError("missing")
    return "seen"

@tool(effect="read")
async def hold(number: int) -> str:
    """Wait while a file exists.

    Args:
        number: Of the call.
    """
    (Path(held).parent / f"{os.getpid()} holds").touch()
    while Path(held).exists():
        await asyncio.sleep(0.05)
    return "held"

@tool(effect="unsafe")
def pay() -> str:
    """Pay."""
    return "paid"

CROWD = 100  # as many calls as a worker makes at a time
SCRIPTS = {
    "asks": [call("look", path="there"), call("pay")],
    "crowds": [together(*(call("hold", number=number) for number in range(CROWD))), say("done")],
    "fails": [together(*(call("look", path=f"missing-{number}") for number in range(9))), say("gave up")],
    "holds": [call("hold", number=0), say("done")],
    "spends": [call("look", path="there"), call("look", path="here")],
}

def reply(conversation):
    replies = SCRIPTS.get(conversation.last_user_message)  # another message says that a budget is spent
    return replies[conversation.replies] if replies else say("in part")

async def main():
    policy = Policy(rules=(allow("look"), allow("hold"), ask("pay")))
    options = {"tools": [look, hold, pay], "policy": policy, "limits": Limits(local_seconds=0)}
    clerk = Agent(name="clerk", instructions="Work.", llm="gpt-5", **options)  # which has a price
    options = {"script": reply, "task_queue": queue, "home": home, "on_event": lambda thread, event: None}
    async with holdfast.running(Catalog(agents=[clerk]), **options) as client:
        print("ready", flush=True)
        while task := (await asyncio.to_thread(sys.stdin.readline)).strip():
            budget = Budget(steps=1) if task == "spends" else None
            await client.start(task, thread=f"{queue}-{task}", budget=budget)

asyncio.run(main())
'''

TIMED = frozenset({"HoldfastArchiveLags", "HoldfastStreamsLag"})
"""Alerts that may fire on a busy machine, because nothing else is wrong."""

Samples = dict[str, float]
"""By name and labels, as Prometheus's text format has them."""


def raised(sample: str, value: float, tick: int) -> float:
    """Return the value that a sample of a copy has at a tick: where runs, workers and stores are in trouble."""
    name, bound = sample.partition("{")[0], re.search(r'le="([^"]+)"', sample)
    le = inf if bound is None or bound[1] == "+Inf" else float(bound[1])
    match name.removesuffix("_bucket"):
        case "holdfast_observed_timestamp_seconds":
            return time.time() - 1_000
        case "holdfast_requests_oldest_seconds":
            return 90_000
        case "holdfast_failed_attempts_total":
            return 1_000 * tick
        case "holdfast_worker_deaths_total":
            return tick
        case "holdfast_archive_lag_seconds" if name.endswith("_bucket"):
            return 10 * tick if le > 30 else 0
        case "holdfast_stream_lag_seconds" if name.endswith("_bucket"):
            return 10 * tick if le > 1 else 0
        case "holdfast_feed_backlog_blocks":
            return 2_000
        case _:
            return value


def shortened(rules: str) -> str:
    """Return alert rules whose alerts fire soon: only the times after `for:` differ."""
    return re.sub(r"^( +for:) \d+m$", r"\1 1s", rules, flags=re.MULTILINE)


class Prometheus:
    """A running Prometheus with our alert rules.

    Args:
        url: Its address.
        targets: The file that lists what it scrapes.
    """

    def __init__(self, url: str, targets: Path) -> None:
        self._url = url
        self._targets = targets

    def scrape(self, *addresses: str) -> None:
        """Scrape these addresses, and no others, from now on."""
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": list(addresses)}]))
        new.rename(self._targets.with_suffix(".json"))

    async def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API."""
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            answer = (await client.get(f"{self._url}/api/v1/{path}", params=query)).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def firing(self) -> dict[str, Any]:
        """Return the annotations of the alerts that fire, by name."""
        alerts = (await self.get("alerts"))["alerts"]
        return {each["labels"]["alertname"]: each["annotations"] for each in alerts if each["state"] == "firing"}

    async def fires(self, *alerts: str) -> None:
        """Wait until these alerts fire."""
        await eventually(self.firing, lambda firing: firing.keys() >= set(alerts))

    async def evaluated(self) -> None:
        """Wait until the rules were evaluated several times more."""
        times: set[str] = set()

        async def note() -> int:
            times.add((await self.get("rules"))["groups"][0]["lastEvaluation"])
            return len(times)

        await eventually(note, lambda seen: seen > 4)


@asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[Prometheus]:
    """Run Prometheus with our rules for a block."""
    (folder / "alerts.yml").write_text(shortened(RULES.read_text()))
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "holdfast", "file_sd_configs": [{"files": ["targets.json"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    listen = f"127.0.0.1:{any_free()}"
    found = Prometheus(f"http://{listen}", folder / "targets.json")
    found.scrape()
    options = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={listen}")
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec("prometheus", *options, cwd=folder, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient() as client:
            while not await _is_ready(client, f"http://{listen}/-/ready"):
                assert process.returncode is None, (folder / "prometheus.log").read_text()
                await asyncio.sleep(0.1)
        yield found
    finally:
        process.terminate()
        await process.wait()


async def _is_ready(client: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).is_success
    except httpx2.HTTPError:
        return False


class Program:
    """A running program that serves metrics.

    Args:
        process: With pipes.
        listen: Where it serves them.
    """

    def __init__(self, process: subprocess.Popen[str], listen: str) -> None:
        self.process = process
        self.listen = listen

    def start(self, task: str) -> None:
        """Start a thread."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task}\n")
        self.process.stdin.flush()

    async def samples(self) -> Samples:
        """Return what it exports now."""
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            text = (await client.get(f"http://{self.listen}/metrics")).text
        return {name: float(value) for name, value in re.findall(r"^([a-z]\S*?(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


@contextmanager
def program(arguments: tuple[str, ...], environ: dict[str, str], folder: Path) -> Iterator[Program]:
    """Run a program for a block."""
    listen = f"127.0.0.1:{any_free()}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environ, "HOLDFAST_METRICS_LISTEN": listen},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Program(process, listen)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def copy_in_trouble(samples: Samples) -> Iterator[str]:
    """Serve a copy of a worker's samples, with values of trouble, for a block; yield its address."""
    ticks = iter(range(1, 1_000_000))

    class Served(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tick = next(ticks)
            lines = [f"{sample} {raised(sample, value, tick)}\n" for sample, value in samples.items()]
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(lines).encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def check_dashboard(server: Prometheus, samples: Samples) -> None:
    """Check that each panel shows what the worker exports, under the labels of its legend."""
    exported = {sample.partition("{")[0] for sample in samples}
    shown = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            found = (await server.get("query", query=target["expr"]))["result"]
            named = set(re.findall(r"\b(?:holdfast|temporal)_[a-z_]+", target["expr"]))
            if named <= exported:
                assert found, f"{panel['title']}: {target['expr']} has no value"
                shown |= named
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert all(label in each["metric"] for each in found), f"{panel['title']} has no {label}"
    assert {re.sub("_bucket$", "", name) for name in shown} >= {each.name for each in METRICS}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers of its own: the metrics of runs count all of a namespace, those that other tests leave blocked, too."""
    with open_stack(tmp_path_factory.mktemp("stack")) as stack:
        asyncio.run(migrate_once(stack.database_url))
        yield stack


@pytest.mark.extended
async def test_every_alert_fires_and_every_query_answers(stack: Stack, tmp_path: Path) -> None:
    """Without a worker, one alert fires; with a sound worker, none; in trouble, each of them."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    held = tmp_path / "held"
    held.touch()
    arguments = (f"alerts-{uuid4().hex[:8]}", str(tmp_path / "home"), str(held))
    async with prometheus(tmp_path) as server:
        environ = {**environ_of(stack), "DATABASE_URL": stack.database_url}
        environ |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        await server.fires("HoldfastNoWorker")
        assert (await server.firing()).keys() == {"HoldfastNoWorker"}

        with program(arguments, environ, tmp_path) as victim:
            victim.start("holds")
            await eventually(lambda: exists(tmp_path / f"{victim.process.pid} holds"), bool)
            with program(arguments, environ, tmp_path) as worker:
                server.scrape(worker.listen)
                await server.evaluated()
                victim.process.kill()
                await eventually(lambda: exists(tmp_path / f"{worker.process.pid} holds"), bool)
                held.unlink()
                worker.start("asks")

                async def lacking() -> set[str]:
                    return missing(await worker.samples())

                await eventually(lacking, lambda names: not names)
                sound = await worker.samples()
                await eventually(server.firing, lambda firing: firing.keys() <= TIMED)
                await server.evaluated()
                assert (await server.firing()).keys() <= TIMED
                await check_dashboard(server, await worker.samples())

                held.touch()
                for task in ("spends", "fails", "crowds"):
                    worker.start(task)
                own = {"HoldfastBudgetSpent", "HoldfastNoSlots", "HoldfastRunsBlocked", "HoldfastToolFails"}
                await server.fires(*own)
                fired = await server.firing()
                assert fired.keys() - TIMED == own

        with copy_in_trouble(sound) as address:
            server.scrape(address)
            await server.fires(*alerts - own - {"HoldfastNoWorker"})
            fired |= await server.firing()
    assert fired.keys() | {"HoldfastNoWorker"} == alerts
    assert "More than half of the calls of look fail." in {each["summary"] for each in fired.values()}


async def exists(path: Path) -> bool:
    """Whether a file exists."""
    return path.exists()


def missing(samples: Samples) -> set[str]:
    """Return the names of our metrics that a worker does not export yet, or, of dead workers, has not counted."""
    counted = ("holdfast_takeovers_total", "holdfast_worker_deaths_total")
    values = {sample.partition("{")[0]: 0.0 for sample in samples}
    for sample, value in samples.items():
        values[sample.partition("{")[0]] += value
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in values if values[name] or name not in counted}
    return {each.name for each in METRICS} - names


def test_only_the_times_of_the_rules_are_shortened() -> None:
    """What fires in the test are the rules that are shipped, but for how long their cause must last."""

    def without_times(rules: str) -> Any:
        groups = yaml.safe_load(rules)["groups"]
        return [{key: value for key, value in rule.items() if key != "for"} for rule in groups[0]["rules"]]

    shipped = RULES.read_text()
    assert without_times(shortened(shipped)) == without_times(shipped)
    assert {rule.get("for", "1s") for rule in yaml.safe_load(shortened(shipped))["groups"][0]["rules"]} == {"1s"}
