"""External witnesses: folders that several workers append to, rejected settings, a node's key, and sealing beside a
faulty witness.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.audit.anchors.sealer import CheckpointSigner
from holdfast.audit.anchors.setting import anchor_folders, read_anchors, with_embedded_anchor
from holdfast.audit.anchors.webhook import CheckpointRejected
from holdfast.cli.screens.anchors import anchors_from_options
from holdfast.composition.sealing import open_sealer
from holdfast.composition.witnesses import own_nodes, witnesses_of
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.node_seals import SignedCheckpoint, read_seal
from holdfast.doctor.anchors import anchors_check
from holdfast.encryption.node_key import ensure_node_key, find_node_key
from holdfast.errors import SettingsError
from tests.support.rig import eventually
from tests.unit.audit.test_node_seals import KEY, NODE, seal_of

HEAD = "a" * 64


def settings(home: Path, **variables: str) -> Settings:
    """Return settings with this state folder."""
    return Settings.from_env({"HOLDFAST_HOME": str(home), **variables}, root=home)


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def lines_in(place: Path, thread: str = "rel-1") -> list[bytes]:
    """Return a witness's lines about a thread."""
    return list(AnchoredLines([place], thread))


class FakeWitness:
    """A witness that keeps signed checkpoints in a list while `open`; otherwise it fails, rejects or hangs."""

    name = "kept"

    def __init__(self, state: str = "open") -> None:
        self.state, self.seals = state, list[SignedCheckpoint]()
        self.asked = 0
        self.changed = asyncio.Event()

    async def put(self, seal: SignedCheckpoint) -> None:
        """Keep a checkpoint."""
        self.asked += 1
        if self.state == "hangs":
            await self.changed.wait()
        if self.state == "fails":
            raise OSError("no disk")
        if self.state == "refuses":
            raise CheckpointRejected("HTTP 403")
        self.seals.append(seal)

    async def aclose(self) -> None:
        """Do nothing."""

    async def events(self) -> Sequence[int]:
        """Return the event numbers of the kept checkpoints."""
        return [seal.events for seal in self.seals]


async def test_workers_that_append_at_the_same_time_lose_no_line(tmp_path: Path) -> None:
    """Many concurrent appends to the files of one thread leave whole lines, and all of them."""
    anchors = [FolderAnchor(tmp_path), FolderAnchor(tmp_path)]
    with ThreadPoolExecutor(8) as pool:
        for number in range(1, 101):
            pool.submit(anchors[number % 2]._append, seal_of(number))
    checkpoints = [read_seal(line) for line in lines_in(tmp_path)]
    assert sorted(seal.events for seal in checkpoints if seal and seal.is_signed()) == list(range(1, 101))


async def test_a_torn_line_damages_no_other(tmp_path: Path) -> None:
    """If a machine stopped in the middle of a line, the next checkpoint begins a line of its own."""
    anchor = FolderAnchor(tmp_path)
    await anchor.put(seal_of(1))
    (file,) = tmp_path.glob("*/*.jsonl")
    with file.open("ab") as opened:
        opened.write(seal_of(2).line()[:40])
    await anchor.put(seal_of(3))
    checkpoints = [read_seal(line) for line in lines_in(tmp_path)]
    assert [seal.events if seal else None for seal in checkpoints] == [1, None, 3]


@pytest.mark.parametrize("thread", ["../../etc", "a/b", "x" * 900, "ä \n~reset-1", ".."])
async def test_a_threads_id_names_no_path(tmp_path: Path, thread: str) -> None:
    """A thread's checkpoints are always two levels below the folder, for any id."""
    folder = tmp_path / "anchors"
    folder.mkdir()
    await FolderAnchor(folder).put(seal_of(1, thread=thread))
    assert [file.parent.parent for file in tmp_path.rglob("*.jsonl")] == [folder]
    assert len(lines_in(folder, thread)) == 1


async def test_an_unmounted_folder_gets_no_checkpoints(tmp_path: Path) -> None:
    """A missing folder is not created; a link in place of a file is not followed."""
    with pytest.raises(OSError, match="No such file"):
        await FolderAnchor(tmp_path / "gone").put(seal_of(1))
    assert not (tmp_path / "gone").exists()
    await FolderAnchor(tmp_path).put(seal_of(1))
    (file,) = tmp_path.glob("*/*.jsonl")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        await FolderAnchor(tmp_path).put(seal_of(1))


def test_checkpoints_are_also_read_from_mixed_files(tmp_path: Path) -> None:
    """Only a webhook file's lines about the thread count; a missing location is named."""
    file = tmp_path / "received.jsonl"
    file.write_bytes(b"\n".join([seal_of(1).line(), seal_of(2, thread="rel-2").line(), b"no seal"]))
    assert lines_in(file) == [seal_of(1).line(), b"no seal"]
    assert lines_in(tmp_path) == []
    with pytest.raises(SettingsError, match=r"gone cannot be read.*HOLDFAST_ANCHORS"):
        lines_in(tmp_path / "gone")


def test_the_setting_names_folders_and_urls(tmp_path: Path) -> None:
    """Folders are absolute, URLs are shown by host alone, and plain http:// beyond this machine is rejected."""
    here = settings(tmp_path, HOLDFAST_ANCHORS=f"{tmp_path}, https://seals.example/?token=s3cret")
    assert [anchor.name for anchor in read_anchors(here)] == [str(tmp_path), "seals.example"]
    assert anchor_folders(here) == [tmp_path]
    with pytest.raises(SettingsError, match=r"anchor 1 \(seals.example\) uses plain http://") as refused:
        read_anchors(settings(tmp_path, HOLDFAST_ANCHORS="http://seals.example/?token=s3cret"))
    assert "s3cret" not in str(refused.value)
    insecure = settings(tmp_path, HOLDFAST_ANCHORS="http://seals.example", HOLDFAST_WEBHOOKS_INSECURE="1")
    assert len(read_anchors(insecure)) == 1


async def test_the_embedded_database_has_an_anchor_by_default(tmp_path: Path) -> None:
    """It is in the state folder, whose name may hold a comma, with this machine's node alone; settings replace it, or
    switch it off.
    """
    home = tmp_path / "a,b"
    here = with_embedded_anchor(settings(home))
    assert witnesses_of(here) is None  # before the first worker
    async with open_sealer(here, namespace="default", say=lambda line: None) as seal:
        await seal("rel-1", 3, HEAD)
    witnesses = witnesses_of(here)
    assert witnesses is not None
    assert (list(witnesses.locations), witnesses.nodes) == ([home / "anchors"], own_nodes(here))
    assert len(own_nodes(here)) == 1
    also = with_embedded_anchor(settings(home, HOLDFAST_ANCHORS=f"embedded,{tmp_path}"))
    assert anchor_folders(also) == [home / "anchors", tmp_path]
    assert witnesses_of(also).nodes is None  # type: ignore[union-attr]  # others write there, too
    assert read_anchors(with_embedded_anchor(settings(home, HOLDFAST_ANCHORS="off"))) == []
    assert read_anchors(settings(home)) == []


@pytest.mark.parametrize("repository", ["git:/srv/seals.git", "git:https://me:s3cret@git.example/x.git"])
def test_a_git_repository_is_rejected_as_a_witness(tmp_path: Path, repository: str) -> None:
    """The error names an alternative, for workers and verifiers alike, and shows no secret."""
    here = settings(tmp_path, HOLDFAST_ANCHORS=f"{tmp_path},{repository}")
    for read in (read_anchors, anchor_folders):
        with pytest.raises(SettingsError, match=r"anchor 2 \(git:…\).*a folder inside a clone") as refused:
            read(here)
        assert "s3cret" not in str(refused.value)
    with pytest.raises(SettingsError, match="git log --all"):
        anchors_from_options(settings(tmp_path), [Path(repository)], ())


def test_a_folder_inside_a_clone_may_be_a_witness(tmp_path: Path) -> None:
    """Its checkpoints are read, and so are formerly committed ones from a file with the commit messages."""
    author = ["-c", "user.name=node", "-c", "user.email=node@example.com"]
    message = f"2 seals of {NODE}\n\n{seal_of(1).line().decode()}\n{seal_of(2).line().decode()}\n"
    asyncio.run(FolderAnchor(tmp_path).put(seal_of(3)))
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", message]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    assert lines_in(tmp_path) == [seal_of(3).line()]
    log = ["git", "-C", str(tmp_path), "log", "--all", "--format=%B"]
    committed = subprocess.run(log, check=True, capture_output=True).stdout.splitlines()
    file = tmp_path / "old-seals.jsonl"
    file.write_bytes(b"\n".join(line for line in committed if line.startswith(b"{")))
    assert lines_in(file) == [seal_of(1).line(), seal_of(2).line()]


def test_a_machine_has_one_key(tmp_path: Path) -> None:
    """The first worker creates the key, readable by its owner alone; workers that start together share it."""
    here = settings(tmp_path / "home")
    assert find_node_key(here) is None
    with ThreadPoolExecutor(4) as pool:
        keys = {key.result() for key in [pool.submit(ensure_node_key, here) for _ in range(4)]}
    keys |= {ensure_node_key(here)}
    assert keys == {find_node_key(here)}
    file = tmp_path / "home" / "node.key"
    assert (file.stat().st_mode & 0o777, names_in(tmp_path / "home")) == (0o600, ["node.key"])
    named = settings(tmp_path / "home", HOLDFAST_NODE_KEY=str(tmp_path / "named.key"))
    assert ensure_node_key(named) not in keys
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by other users"):
        find_node_key(here)
    file.unlink()
    file.write_text("not a key\n")
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="does not hold a private key") as refused:
        ensure_node_key(here)
    assert "not a key" not in str(refused.value)


async def test_without_a_folder_for_the_key_sealing_is_off(tmp_path: Path) -> None:
    """The worker reports it and runs; without witnesses it reports nothing and creates no key."""
    messages: list[str] = []
    (tmp_path / "file").touch()
    values = {"HOLDFAST_ANCHORS": str(tmp_path), "HOLDFAST_NODE_KEY": str(tmp_path / "file" / "node.key")}
    async with open_sealer(settings(tmp_path, **values), namespace="default", say=messages.append) as seal:
        await seal("rel-1", 3, HEAD)
    assert (len(messages), messages[0].startswith("Seals      off: "), "HOLDFAST_NODE_KEY" in messages[0]) == (
        1,
        True,
        True,
    )
    async with open_sealer(settings(tmp_path), namespace="default", say=messages.append) as seal:
        await seal("rel-1", 3, HEAD)
    assert (len(messages), names_in(tmp_path)) == (1, ["file"])
    async with open_sealer(
        settings(tmp_path, HOLDFAST_ANCHORS=str(tmp_path)), namespace="default", say=messages.append
    ) as seal:
        await seal("rel-1", 3, HEAD)
        key = find_node_key(settings(tmp_path))
        assert key is not None
        assert public_key(key) in messages[1]
        assert key not in messages[1]
        (line,) = await eventually(lambda: asyncio.to_thread(lines_in, tmp_path), bool)
    kept = read_seal(line)
    assert kept is not None
    assert (kept.node, kept.is_signed()) == (public_key(key), True)


@pytest.mark.parametrize("state", ["fails", "hangs"])
async def test_a_faulty_witness_gets_the_last_checkpoint_once_it_answers(state: str) -> None:
    """Sealing raises nothing, other witnesses get every checkpoint, and the faulty one finally gets the last one."""
    bad, good = FakeWitness(state), FakeWitness()
    async with CheckpointSigner(KEY, [bad, good], namespace="default") as sealer:
        for events in range(1, 6):
            await sealer.seal("rel-1", events, HEAD)
        assert await eventually(good.events, lambda events: events[-1:] == [5])
        bad.state = "open"
        bad.changed.set()
        assert await eventually(bad.events, lambda events: events[-1:] == [5])


async def test_a_checkpoint_that_a_witness_rejects_is_not_sent_again() -> None:
    """A receiver that rejects for good gets each checkpoint once; a head that is not a digest is never sealed."""
    refusing, good = FakeWitness("refuses"), FakeWitness()
    async with CheckpointSigner(KEY, [refusing, good], namespace="default") as sealer:
        await sealer.seal("rel-1", 1, HEAD)
        await sealer.seal("rel-1", 2, "no digest")
        await sealer.seal("rel-1", 0, HEAD)
        await sealer.seal("rel-2", 1, HEAD)
        await eventually(good.events, lambda events: len(events) == 2)

        async def asked() -> int:
            return refusing.asked

        await eventually(asked, lambda asked: asked == 2)
    assert (refusing.asked, {seal.thread for seal in good.seals}) == (2, {"rel-1", "rel-2"})


def test_verify_takes_the_trusted_nodes_as_an_option(tmp_path: Path) -> None:
    """`verify` takes keys or files of keys with notes and names anything else; folders come from the settings by
    default.
    """
    other = public_key(encode_key(bytes([9]) * 32))
    file = tmp_path / "nodes.txt"
    file.write_text(f"# workers\n{NODE}  # one\n\n{other} two\n")
    here = settings(tmp_path, HOLDFAST_ANCHORS=f"{tmp_path},https://seals.example")
    witnesses = anchors_from_options(here, (), [str(file)])
    assert witnesses is not None
    assert (list(witnesses.locations), witnesses.nodes) == ([tmp_path], {NODE: None, other: None})
    assert anchors_from_options(settings(tmp_path), (), ()) is None
    for nodes, words in (
        ([str(tmp_path / "gone")], "neither a public key nor a file"),
        (["ed25519:x"], "--nodes ed25519:x"),
    ):
        with pytest.raises(SettingsError, match=words):
            anchors_from_options(here, (), nodes)
    assert anchors_from_options(settings(tmp_path), (), [NODE]) is None  # they verify signatures of results
    file.write_text("# none\n")
    with pytest.raises(SettingsError, match="names no key"):
        anchors_from_options(here, (), [str(file)])


def test_doctor_shows_the_nodes_key(tmp_path: Path) -> None:
    """`doctor` prints the public key to be copied, reports a missing folder as a fault, and prints nothing without
    witnesses.
    """
    assert anchors_check(settings(tmp_path)) is None
    gone = anchors_check(settings(tmp_path, HOLDFAST_ANCHORS=str(tmp_path / "gone")))
    assert gone is not None
    assert (gone.status, "no folder" in gone.detail) == ("missing", True)
    here = settings(tmp_path, HOLDFAST_ANCHORS=str(tmp_path))
    early = anchors_check(here)
    private = ensure_node_key(here)
    later = anchors_check(here)
    assert early is not None
    assert later is not None
    assert (early.status, later.status, public_key(private) in later.detail) == ("open", "ok", True)
