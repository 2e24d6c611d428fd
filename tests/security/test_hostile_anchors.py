"""Hostile anchors: neither their content nor their responses harm workers or verifiers."""

import asyncio
import operator
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast.audit.anchors import sealer
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.audit.anchors.sealer import CheckpointSigner
from holdfast.audit.anchors.webhook import WebhookAnchor
from holdfast.audit.evidence.anchors import Anchors, compare, compare_with_branches, find_seals
from holdfast.audit.evidence.file_anchors import compare_file
from holdfast.cli.screens.anchors import anchors_from_options
from holdfast.config.settings import Settings
from holdfast.config.webhooks import Receiver as To
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.node_seals import SignedCheckpoint, make_seal
from holdfast.errors import SettingsError
from tests.support import forked
from tests.support.rig import eventually

KEY = encode_key(bytes([31]) * 32)
NODE = public_key(KEY)
AT = datetime(2026, 1, 2, tzinfo=UTC)
LOG = {position: f"{position:064x}" for position in range(1_000)}


def seal_of(events: int, *, namespace: str = "default", thread: str = "rel-1", seconds: int = 0) -> SignedCheckpoint:
    """Return a seal of `LOG`."""
    at = AT + timedelta(seconds=seconds)
    return make_seal(KEY, namespace=namespace, thread=thread, events=events, head=LOG[events - 1], at=at)


async def file_of(folder: Path, thread: str = "rel-1") -> Path:
    """Anchor a seal, and return its file."""
    await FolderAnchor(folder).put(seal_of(1, thread=thread))
    return Path(AnchoredLines([folder], thread)._files[0][0])


async def test_any_number_of_lines_takes_bounded_memory(tmp_path: Path) -> None:
    """Seals are read one by one, an endless line in parts, and the valid ones among them are found."""
    file = await file_of(tmp_path)
    with file.open("wb") as opened:
        opened.write(b"{}\n" * 20_000 + b"x" * 20_000_000 + b"\n")
        opened.write(seal_of(7).line() + b"\n" + (seal_of(5).line() + b"\n") * 1_000)
    tracemalloc.start()
    try:
        comparison = compare(find_seals(Anchors([tmp_path], {NODE: None}), "rel-1"), dict(list(LOG.items())[:7]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (comparison.faults, comparison.seals, peak < 5_000_000) == ((), 1, True)
    assert any("lines that are not seals" in one.why for one in comparison.unchecked)


async def test_links_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    """They are reported; a verifier neither waits for a pipe nor leaves the anchor; a pipe as anchor is rejected."""
    outside = tmp_path / "outside"
    outside.write_bytes(seal_of(900).line() + b"\n")
    anchor = tmp_path / "anchor"
    anchor.mkdir()
    makes: list[Callable[[Path], None]] = [os.mkfifo, lambda path: path.symlink_to(outside), Path.mkdir]
    for number, make in enumerate(makes):
        file = await file_of(anchor, f"rel-{number}")
        file.unlink()
        make(file)
        lines = AnchoredLines([anchor], f"rel-{number}")
        assert (list(lines), lines.odd) == ([], [str(file)])
    (anchor / "linked").symlink_to(outside.parent)
    comparison = compare(find_seals(Anchors([anchor]), "rel-1"), LOG)
    assert any("linked is a link" in one.why for one in comparison.unchecked)
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SettingsError, match="neither a folder nor a regular file"):
            AnchoredLines([odd], "rel-1")


async def test_seals_are_not_written_to_links_pipes_or_hard_links(tmp_path: Path) -> None:
    """A planted file in place of a seal file gets no seal, and the error says so: the sealer retries."""
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    anchor = tmp_path / "anchor"
    anchor.mkdir()
    file = await file_of(anchor)
    makes: list[Callable[[Path], None]] = [
        os.mkfifo,
        lambda path: path.symlink_to(victim),
        lambda path: path.hardlink_to(victim),
        Path.mkdir,
    ]
    for make in makes:
        file.rmdir() if file.is_dir() else file.unlink()
        make(file)
        with pytest.raises(OSError):  # noqa: PT011  # each has another
            await FolderAnchor(anchor).put(seal_of(2))
    file.rmdir()
    file.parent.rename(tmp_path / "node")
    file.parent.symlink_to(tmp_path / "node")
    with pytest.raises(OSError):  # noqa: PT011  # of the link
        await FolderAnchor(anchor).put(seal_of(2))
    assert (victim.read_text(), list((tmp_path / "node").iterdir())) == ("mine\n", [])


SEAL_OF = """
import asyncio, sys
from datetime import datetime
from pathlib import Path
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.core.log.node_seals import make_seal
key, at = sys.argv[1], datetime.fromisoformat(sys.argv[2])
anchor = FolderAnchor(Path(sys.argv[3]))
def seal_of(n):
    return make_seal(key, namespace="default", thread="rel-1", events=n, head=f"{n - 1:064x}", at=at)
"""
APPEND = """
for number in range(int(sys.argv[4]), int(sys.argv[5])):
    asyncio.run(anchor.put(seal_of(number)))
"""


def run_code(code: str, *words: object) -> str:
    """Run code after `SEAL_OF` in another process, and return its output."""
    ended = forked.run("-c", [SEAL_OF + code, KEY, AT.isoformat(), *map(str, words)], environ=os.environ)
    assert ended.code == 0, ended.err
    return ended.out.decode()


async def test_concurrent_appends_lose_no_line(tmp_path: Path) -> None:
    """Two workers with the same key write whole lines to the same file."""
    ranges = (1, 40), (40, 80)
    await asyncio.gather(*(asyncio.to_thread(run_code, APPEND, tmp_path, *each) for each in ranges))
    comparison = compare(find_seals(Anchors([tmp_path], {NODE: None}), "rel-1"), LOG)
    lines = list(AnchoredLines([tmp_path], "rel-1"))
    assert (sorted(lines), comparison.faults) == (sorted(seal_of(number).line() for number in range(1, 80)), ())
    assert not any("not seals" in one.why for one in comparison.unchecked)


FULL = """
import resource
limit = int(sys.argv[4])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
for number in (1, 2):
    try:
        asyncio.run(anchor.put(seal_of(number)))
    except OSError as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
asyncio.run(anchor.put(seal_of(3)))
"""


def test_a_full_disk_loses_no_later_seal(tmp_path: Path) -> None:
    """A line that fits only in part, or not at all, is an error that the sealer retries; the next line is whole."""
    printed = run_code(FULL, tmp_path, len(seal_of(1).line()) + 50)
    lines = list(AnchoredLines([tmp_path], "rel-1"))
    assert (printed, lines[0], lines[-1]) == ("OSError\n", seal_of(1).line(), seal_of(3).line())
    assert len(lines) == 3


@asynccontextmanager
async def answering(head: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """Serve a receiver that responds with `head` and an endless body; yield its URL, and how much it could send."""
    sent = [0, 0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent[1] += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
                sent[0] += 65_536
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", sent


async def test_an_endless_body_is_not_read() -> None:
    """Only the status counts: a receiver that never stops responding costs neither time nor memory."""
    async with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") as (url, sent):
        anchor = WebhookAnchor(To(url=url))
        await anchor.put(seal_of(1))
        await anchor.aclose()
        assert sent[0] < 50_000_000


async def test_a_redirect_is_not_followed() -> None:
    """A receiver cannot redirect a seal; that is an error, which the sealer retries."""
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n") as (elsewhere, there):
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
        async with answering(head.encode()) as (url, _):
            anchor = WebhookAnchor(To(url=url))
            with pytest.raises(OSError, match="HTTP 307"):
                await anchor.put(seal_of(1))
            await anchor.aclose()
        assert there[1] == 0


class Slow:
    """An anchor that stores each seal only after the run has stopped waiting for it."""

    name = "slow"
    most = 1
    between = 0.0

    def __init__(self) -> None:
        self.kept: list[SignedCheckpoint] = []

    async def put(self, *seals: SignedCheckpoint) -> None:
        """Keep seals."""
        await asyncio.sleep(2 * sealer.WAIT_SECONDS)
        self.kept += seals

    async def aclose(self) -> None:
        """Do nothing."""

    async def count(self) -> int:
        """Return how many seals it has."""
        return len(self.kept)


async def test_an_anchor_that_is_slow_for_hours_delays_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The anchor gets all seals, and after the first one no run waits for it."""
    monkeypatch.setattr(sealer, "WAIT_SECONDS", 0.1)
    slow, waited = Slow(), list[bool]()
    async with CheckpointSigner(KEY, [slow], namespace="default") as sealing:
        (lane,) = sealing._queues
        for number in range(1, 6):
            waited.append(not lane.slow)
            await sealing.seal(f"rel-{number}", 1, LOG[0])
            await eventually(slow.count, partial(operator.eq, number))
    assert (waited, len(slow.kept)) == ([True, False, False, False, False], 5)


def test_seals_of_another_namespace_accuse_no_file(tmp_path: Path) -> None:
    """A file names no namespace: it must match the seals of one, and the others are reported."""
    file = tmp_path / "received.jsonl"
    other = make_seal(KEY, namespace="staging", thread="rel-1", events=3, head="f" * 64, at=AT)
    file.write_bytes(other.line() + b"\n" + seal_of(9).line() + b"\n")
    seals = find_seals(Anchors([file], {NODE: None}), "rel-1")
    good = compare_file(seals, {position: LOG[position] for position in range(9)})
    assert (good.faults, good.seals) == ((), 1)
    assert [one.why for one in good.unchecked] == [
        "the file was compared with seals of namespace 'default'; there are others, of staging"
    ]
    assert compare_file(seals, dict.fromkeys(range(9), "a" * 64)).faults


async def test_a_reset_during_a_verification_accuses_nobody(tmp_path: Path) -> None:
    """Seals are listed before the log is read; a branch that a reset archives meanwhile is read after it."""
    folder = FolderAnchor(tmp_path)
    await folder.put(seal_of(9))
    seals = find_seals(Anchors([tmp_path], {NODE: None}), "rel-1", namespace="default")
    gone = make_seal(KEY, namespace="default", thread="rel-1", events=9, head=LOG[8], at=AT, gone="reset")

    async def branch(aside: str) -> dict[int, str]:
        return {}

    log = dict.fromkeys(range(5), "b" * 64)
    assert (await compare_with_branches(seals, log, None, branch, whole=True)).faults
    await folder.put(gone)
    assert not (await compare_with_branches(seals, log, None, branch, whole=True)).faults


def test_a_revoked_node_counts_until_its_revocation(tmp_path: Path) -> None:
    """`until TIME` after a leaked key in the file of nodes limits it; an invalid time is rejected."""
    nodes, anchor = tmp_path / "nodes.txt", tmp_path / "received.jsonl"
    late = make_seal(KEY, namespace="default", thread="rel-1", events=9, head="f" * 64, at=AT + timedelta(seconds=5))
    anchor.write_bytes(seal_of(4).line() + b"\n" + late.line() + b"\n")
    settings = Settings.from_env({}, root=tmp_path)

    def compared(words: str) -> tuple[int, int]:
        nodes.write_text(f"{NODE} {words}\n")
        given = anchors_from_options(settings, [anchor], [str(nodes)])
        assert given is not None
        found = compare(find_seals(given, "rel-1"), LOG)
        return found.seals, len(found.faults)

    assert compared("# builder 1") == (1, 1)
    assert compared("until 2026-01-02T00:00:05Z  # stolen") == (1, 0)
    assert compared("until 2026-01-02T00:00:06Z") == (1, 1)
    for words in ("until", "until yesterday", "until 2026-01-02T00:00:05"):
        with pytest.raises(SettingsError, match=r"nodes.txt"):
            compared(words)
