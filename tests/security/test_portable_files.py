"""Forged portable files of real runs: each forgery by an exporter, or by anyone on the way, is reported."""

import asyncio
import os
import struct
import zipfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from holdfast import Agent, Catalog, Policy, Signer, Terms, ToolContext, allow, ask, tool
from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.cli.screens.record_screens import file_screen
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import public_key
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, AgentLoaded, ApprovalRequested, DecisionReceived, ToolCallStarted
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.errors import ArtifactNotFound, ExportFailed, FileUnreadable, ThreadNotFound
from holdfast.portable.export import export_thread
from holdfast.portable.format import members
from holdfast.portable.format.layout import Entry, local_header
from holdfast.portable.format.manifest import Exported
from holdfast.portable.format.members import ARTIFACTS, DERIVED, INTENT, LEDGER, LOG, MANIFEST, STATEMENT
from holdfast.portable.verify import FileVerification, verify_file
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.support.people import KEYS, PEOPLE, answer, decision, request_of
from tests.support.portable_files import ALICE, MALLORY, SIGNER, Parts, log_of, parts_of, rebuilt
from tests.support.rig import Rig, StartRig

SIGNED = Policy(
    rules=(allow("dump"), ask("pay", terms=Terms(by=("finance",), quorum=2))), approvers=PEOPLE, signatures="required"
)
SCRIPT = steps([call("dump"), call("pay", cents=100), say("done")])
SECRET = "s3cr3t-of-the-environment"


@tool(effect="unsafe", secrets=("SHOP_TOKEN",))
def pay(cents: int, context: ToolContext) -> str:
    """Pay with a secret, and return it."""
    return f"paid {cents} with {context.secret('SHOP_TOKEN')}"


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return "0123456789" * 5_000


def catalog() -> Catalog:
    """Return a clerk who pays when two people have signed."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=SIGNED, tools=[pay, dump])])


@pytest.fixture
async def pool(stack: Stack) -> AsyncIterator[AsyncConnectionPool]:
    """Open connections to the database of the rig's worker."""
    await migrate(stack.database_url)
    async with open_pool(stack.database_url, size=2) as pool:
        yield pool


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the secret that the tool declares."""
    monkeypatch.setenv("SHOP_TOKEN", SECRET)


def evidence(pool: AsyncConnectionPool) -> Evidence:
    """Return ledger and artifacts."""
    return Evidence(partial(effects_of, pool), PostgresThreads(pool).asides, PostgresArtifacts(pool))


async def approve(run: Any) -> None:
    """Have two people sign the payment."""
    for name in ("alice", "bob"):
        outcome = await answer(run, "decide", decision(run.id, await request_of(run), by=name))
        assert outcome in ("accepted", "waiting_for_quorum")


async def exported(rig: Rig, pool: AsyncConnectionPool, run: Any, path: Path, **options: Any) -> Exported:
    """Export the thread."""
    threads = Threads(rig.client, record=PostgresThreads(pool))
    return await export_thread(
        threads, run.id, path, evidence=evidence(pool), private=ALICE, note=lambda _: None, **options
    )


def events_in(parts: Parts, thread: str) -> list[AgentEvent]:
    """Return the events of a file."""
    return run_events(thread, read_lines(thread, 0, dict(parts)[LOG].splitlines()))


def with_log(parts: Parts, events: Sequence[AgentEvent]) -> Parts:
    """Put another log into a file, in a correct chain."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    return [(name, log_of(log.events) if name == LOG else content) for name, content in parts]


async def judged(path: Path, content: bytes, **options: Any) -> FileVerification:
    """Write and verify a file."""
    path.write_bytes(content)
    return await verify_file(path, **options)


async def test_a_real_run_is_exported_and_every_forgery_is_reported(
    rig: StartRig, pool: AsyncConnectionPool, tmp_path: Path, environment: None
) -> None:
    """An open run passes as far as it is recorded; a finished one with verdicts, signatures, ledger and artifacts.

    Its exporter, whose signature is valid, then forges it: events that no run records, effects without a decision,
    artifacts and intent that differ from the log.
    """
    async with rig(catalog(), SCRIPT) as r:
        run = await r.start()
        await request_of(run)
        await exported(r, pool, run, begun := tmp_path / "open.holdfast")
        early = await verify_file(begun, signer=SIGNER)
        assert early.ok, early
        assert {each.what for each in early.unchecked} == {"anchors", "history", "keys", "end"}
        await approve(run)
        await run.result()
        path = tmp_path / "run.holdfast"
        made = await exported(r, pool, run, path)
        content = path.read_bytes()
        again = await exported(r, pool, run, tmp_path / "again.holdfast")
        assert (made, content) == (again, (tmp_path / "again.holdfast").read_bytes())
        with pytest.raises(ExportFailed, match="exists already"):
            await exported(r, pool, run, path)
        assert not list(tmp_path.glob(".*.part"))

    good = await verify_file(path, trusted=SIGNED, signer=SIGNER)
    assert (good.ok, good.events, good.head, good.signatures) == (True, made.events, made.head, 2)
    assert {each.what for each in good.unchecked} == {"anchors", "history"}
    assert SECRET.encode() not in content
    assert ALICE.removeprefix("ed25519:").encode() not in content

    parts, forged = parts_of(content), tmp_path / "forged.holdfast"
    events = events_in(parts, run.id)
    kinds = (ApprovalRequested, DecisionReceived)
    payment = [event for event in events if isinstance(event, ToolCallStarted)][-1].position
    first_decision = next(event for event in events if isinstance(event, DecisionReceived))

    for change, place, words in (
        ([event for event in events if not isinstance(event, kinds)], payment - 3, "leads to approval_requested"),
        ([event for event in events if event is not first_decision], None, "has to be waiting_for_quorum"),
        ([event for event in events if not isinstance(event, AgentLoaded)], None, "nothing that came before"),
    ):
        report = await judged(forged, rebuilt(with_log(parts, change), ALICE), signer=SIGNER)
        assert (report.ok, report.where) == (False, LOG), words
        assert words in report.reason
        assert place is None or report.position == place

    for name, altered, words in (
        (INTENT, b'{"constraints":[],"refinements":[],"tasks":[]}', "not what follows from the log"),
        (members.KEYS, b'{"approvers":[],"gateways":[]}', "not what follows from the log"),
        (LEDGER, b"", "the ledger does not have the effect"),
        (LEDGER, b"{}\n", "no row of a ledger"),
    ):
        forgery = [(each, altered if each == name else data) for each, data in parts]
        report = await judged(forged, rebuilt(forgery, ALICE), signer=SIGNER)
        assert (report.ok, report.where) == (False, name)
        assert words in report.reason

    (artifact,) = [name for name, _ in parts if name.startswith(ARTIFACTS)]
    without = [(name, data) for name, data in parts if name != artifact]
    report = await judged(forged, rebuilt(without, ALICE))
    assert (report.ok, report.where, report.reason) == (False, artifact, "it is missing, and an event refers to it")
    other = [(name, b"other" if name == artifact else data) for name, data in parts]
    report = await judged(forged, rebuilt(other, ALICE))
    assert (report.ok, report.where) == (False, artifact)
    for name in (*DERIVED, LEDGER):
        report = await judged(forged, rebuilt([pair for pair in parts if pair[0] != name], ALICE))
        assert (report.ok, report.where) == (False, name)

    # Which key signed it?
    for private, options in ((MALLORY, {"signer": SIGNER}), (None, {"signer": SIGNER}), (MALLORY, {"trusted": SIGNED})):
        report = await judged(forged, rebuilt(parts, private), **options)
        assert (report.ok, report.where) == (False, STATEMENT)
    by_approver = await judged(forged, rebuilt(parts, KEYS["alice"]), trusted=SIGNED)
    assert (by_approver.ok, by_approver.signers) == (True, (public_key(KEYS["alice"]),))
    assert "signer" in {each.what for each in by_approver.unchecked}, "who decides vouches for no file"
    named = SIGNED.model_copy(update={"signers": (Signer(name="ops", keys=(SIGNER,)),)})
    assert (await judged(forged, rebuilt(parts, KEYS["alice"]), trusted=named)).where == STATEMENT
    vouched = await judged(forged, rebuilt(parts, ALICE), trusted=named)
    assert (vouched.ok, {each.what for each in vouched.unchecked} & {"signer", "policy"}) == (True, set())
    unsigned = await judged(forged, rebuilt(parts, None))
    assert (unsigned.ok, "signature" in {each.what for each in unsigned.unchecked}) == (True, True)


@pytest.mark.extended
async def test_a_redacted_export_has_no_text_of_the_run(
    rig: StartRig, pool: AsyncConnectionPool, tmp_path: Path, environment: None
) -> None:
    """Redacted or without artifacts, a file verifies and reports its omissions; a failed export leaves no file."""
    async with rig(catalog(), SCRIPT) as r:
        run = await r.start("a task of words")
        await approve(run)
        await run.result()
        await exported(r, pool, run, path := tmp_path / "redacted.holdfast", redact=True)
        await exported(r, pool, run, bare := tmp_path / "bare.holdfast", artifacts=False)
        threads = Threads(r.client, record=PostgresThreads(pool))
        with pytest.raises(ThreadNotFound):
            await export_thread(threads, "no-such-thread", tmp_path / "none.holdfast")
        lacking = Evidence(partial(effects_of, pool), PostgresThreads(pool).asides, _Empty())
        with pytest.raises(ArtifactNotFound):
            await export_thread(threads, run.id, tmp_path / "none.holdfast", evidence=lacking)
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix in (".holdfast", ".part")) == [
        *("bare.holdfast", "redacted.holdfast")
    ]
    content = path.read_bytes()
    for words in (b"a task of words", b"0123456789", b"paid", b"cents", b"Pay."):
        assert words not in content
    report = await verify_file(path, signer=SIGNER)
    assert (report.ok, report.redacted) == (True, True)
    assert {"bodies", "artifacts", "ledger"} <= {each.what for each in report.unchecked}
    without = await verify_file(bare, signer=SIGNER)
    assert (without.ok, "artifacts" in {each.what for each in without.unchecked}) == (True, True)


class _Empty:
    """An artifact store that has lost everything."""

    async def put(self, content: bytes, *, thread: str) -> str:
        raise NotImplementedError

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        raise ArtifactNotFound(address)

    async def size(self, address: str) -> int:
        raise ArtifactNotFound(address)


async def test_text_of_a_file_is_escaped_on_the_terminal(tmp_path: Path) -> None:
    """Names, keys and reasons from a file are shown with escaped control characters."""
    escape = "\x1b[2J"
    evil = local_header(Entry("x", 0, 0)) + b"PK\x01\x02" + bytes(24) + struct.pack("<H", 5) + bytes(16) + b"\x1b[2Jx"
    evil += b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, 51, 31, 0)
    report = await judged(tmp_path / f"{escape}.holdfast", evil)
    assert (report.ok, report.where) == (False, "zip")
    assert "\\x1b" in report.reason
    assert escape not in file_screen(report).plain
    shown = FileVerification(
        thread=escape,
        verdict="altered",
        events=1,
        sources=("file",),
        faults=(Finding(escape, escape),),
        unchecked=(Unchecked(escape, escape),),
        signers=(escape,),
    )
    assert escape not in file_screen(shown).plain


async def test_bombs_links_and_pipes_are_rejected(tmp_path: Path) -> None:
    """Compressed members, paths that lead elsewhere, members that claim gigabytes and endless pipes are rejected."""
    path = tmp_path / "bomb.holdfast"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr(LOG, b"0" * 50_000_000)
        bomb.writestr(MANIFEST, b"{}")
        bomb.writestr(STATEMENT, b"{}")
    report = await verify_file(path)
    assert (report.ok, report.where) == (False, "zip")
    for name in (
        "../../etc/passwd",
        "/etc/passwd",
        "memory/artifacts/../../x",
        "memory\\log.jsonl",
        "memory/LOG.jsonl",
    ):
        path.unlink()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"x")
        report = await verify_file(path)
        assert (report.ok, report.where) == (False, "zip")
        assert "no member of the format" in report.reason
    huge = local_header(Entry(LOG, 3_999_000_000, 0))
    report = await judged(path, huge + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, 46, 3_999_000_040, 0))
    assert (report.ok, report.where) == (False, "zip")
    pipe = tmp_path / "pipe.holdfast"
    os.mkfifo(pipe)
    for odd in (pipe, tmp_path, tmp_path / "missing.holdfast"):
        with pytest.raises(FileUnreadable):
            await asyncio.wait_for(verify_file(odd), 120)
