"""A catalog's own stores through the command line and the gateway, without a database unless one is needed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from holdfast.config.stack_file import Stack
from holdfast.testing import call, say, steps
from tests.support.forked import ROOT, Ended, run
from tests.support.own_stores import in_folder
from tests.support.rig import StartRig, environ_of, eventually
from tests.support.serving import sha256

FORGOTTEN = {"TEMPORAL_NAMESPACE": "temporal-system"}
"""A namespace that every server has, without our threads, as if Temporal had removed them."""


@dataclass
class Thread:
    """A thread in the user's own stores, and the user's terminal."""

    id: str
    events: int
    folder: Path
    environ: dict[str, str] = field(repr=False)

    async def __call__(self, *words: str, catalog: bool = True, **variables: str) -> Ended:
        """Run `starter.py`."""
        options = ["--catalog", "tests.support.own_stores:catalog"] if catalog else []
        return await asyncio.to_thread(run, "starter", [*words, *options], environ=self.environ | variables)


@pytest.fixture
async def thread(rig: StartRig, stack: Stack, tmp_path: Path) -> AsyncIterator[Thread]:
    """Return a finished thread with an effect and an artifact."""
    folder = tmp_path / "stores"
    folder.mkdir()
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
    environ = {**outside, **environ_of(stack), "HOLDFAST_HOME": str(tmp_path / "home"), "OWN_STORES": str(folder)}
    environ.pop("DATABASE_URL", None)
    script = steps([call("measure", what="it"), say("Measured.")])
    async with rig(in_folder(folder), script) as r:
        started = await r.start("measure")
        await started.result()
        file = folder / f"{started.id}.jsonl"
        lines = await eventually(
            lambda: asyncio.to_thread(lambda: file.read_bytes().splitlines() if file.exists() else []),
            lambda lines: bool(lines) and json.loads(lines[-1])["type"] == "run_finished",
        )
        yield Thread(started.id, len(lines), folder, environ)


async def test_the_command_line_reads_a_catalogs_own_thread_store(thread: Thread) -> None:
    """Once Temporal has removed a thread, log, show and transcript read the user's store."""
    log, show, transcript, without = [
        await thread(*words, **FORGOTTEN, catalog=catalog)
        for words, catalog in (
            (("log", thread.id, "--json"), True),
            (("show", thread.id, "--json"), True),
            (("transcript", thread.id, "--json"), True),
            (("show", thread.id), False),
        )
    ]
    assert [each.code for each in (log, show, transcript, without)] == [0, 0, 0, 3], show.err
    assert len(log.out.splitlines()) == thread.events
    assert json.loads(show.out)["result"] == "Measured."
    assert b"this is from its permanent record" in show.err
    assert len(transcript.out.splitlines()) == 4


async def test_verify_checks_the_catalogs_own_stores(thread: Thread, stack: Stack) -> None:
    """Events and artifacts of the user's stores are checked; the ledger is reported as unchecked without a database."""
    alone, with_ledger = (
        await thread("verify", thread.id, "--json"),
        await thread("verify", thread.id, "--json", DATABASE_URL=stack.database_url),
    )
    unchecked = [{each["what"] for each in json.loads(ran.out)["not_checked"]} for ran in (alone, with_ledger)]
    assert (alone.code, with_ledger.code, unchecked) == (7, 0, [{"ledger"}, set()]), alone.out
    assert json.loads(alone.out)["from"] == ["history", "record"]

    (artifact,) = thread.folder.glob("sha256:*")
    artifact.write_bytes(b"something else")
    altered = json.loads((await thread("verify", thread.id, "--json")).out)
    assert (altered["verdict"], altered["where"]) == ("altered", "artifacts")


@pytest.mark.extended
async def test_a_store_that_cannot_be_pruned_is_reported(thread: Thread, stack: Stack) -> None:
    """Holdfast removes nothing from a user's store: a usage error names the catalog."""
    ran = await thread("prune", "--older-than", "1h", "--yes", DATABASE_URL=stack.database_url)
    assert ran.code == 2
    assert b"tests.support.own_stores:catalog keeps threads in a store of its own" in ran.err


@pytest.mark.extended
async def test_memories_are_written_to_the_catalogs_own_store(thread: Thread) -> None:
    """`remember` and `recall` need no database if the catalog has a memory store."""
    kept = await thread("remember", "Tea without milk.", "--user", "ann", "--json")
    recalled = await thread(
        "recall", "milk", "--json", HOLDFAST_CATALOG="tests.support.own_stores:catalog", catalog=False
    )
    assert (kept.code, recalled.code) == (0, 0), kept.err
    assert json.loads(recalled.out) == json.loads(kept.out)
    assert "Tea without milk." in (thread.folder / "memories.json").read_text()


async def test_a_catalog_that_cannot_be_loaded_is_named(thread: Thread) -> None:
    """If its stores are needed, a catalog that cannot be loaded is a usage error, not an empty store."""
    ran = await thread("show", thread.id, HOLDFAST_CATALOG="no.such:catalog", catalog=False, **FORGOTTEN)
    assert ran.code == 2
    assert b"'no.such:catalog'" in ran.err


@pytest.mark.extended
async def test_the_gateway_reads_a_catalogs_own_thread_store(thread: Thread, tmp_path: Path) -> None:
    """The gateway reads a thread that Temporal has removed from the user's store."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(json.dumps({"tokens": [{"name": "ann", "sha256": sha256("of-ann"), "scopes": ["read"]}]}))
    words = ["--port", "0", "--catalog", "tests.support.own_stores:catalog"]
    environ = {**thread.environ, **FORGOTTEN, "HOLDFAST_GATEWAY_TOKENS": str(tokens)}
    with gateway(words, environ) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
            state = await http.get(f"/threads/{thread.id}", headers={"Authorization": "Bearer of-ann"})
            health = await http.get("/health")
    assert (state.status_code, state.json()["result"]) == (200, "Measured."), state.text
    assert health.json()["record"] == "ok"


@contextmanager
def gateway(words: list[str], environ: dict[str, str]) -> Iterator[str]:
    """Run `gateway.py` in a separate process, and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "gateway.py"), *words], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("Gateway"), first
        yield first.split()[1].removesuffix("/openapi.json")
    finally:
        process.terminate()
        process.communicate(timeout=120)
        assert process.returncode == 0
