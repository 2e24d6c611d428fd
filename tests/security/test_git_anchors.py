"""Git repositories as anchors: they belong to others, who may put anything into them, rewrite them, or not answer."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.authority.signatures import encode_key, public_key
from holdfast.errors import SettingsError
from holdfast.log.node_seals import NodeSeal, make_seal, read_seal
from holdfast.memory.errors import MemoryRefused
from holdfast.runtime.anchors import git_remote, git_seals
from holdfast.runtime.anchors.git import GitAnchor, git_folder
from holdfast.runtime.anchors.git_remote import Remote
from holdfast.runtime.anchors.lines import AnchoredLines
from holdfast.runtime.anchors.sealer import Sealer
from holdfast.runtime.audit.anchors import Anchors, compare, find_seals
from holdfast.runtime.cli.anchors import anchors_check, given_anchors
from holdfast.runtime.config.settings import Settings
from tests.security.test_hostile_anchors import AT, KEY, LOG, NODE, seal_of
from tests.support.git_server import serving
from tests.support.rig import eventually

OTHER = encode_key(bytes([32]) * 32)


def git(*arguments: str, at: Path | None = None) -> str:
    """Run git as a person does, and return what it printed."""
    options = ["-c", "user.name=Dana", "-c", "user.email=dana@example.org", "-c", "safe.bareRepository=all"]
    done = subprocess.run(["git", *options, *arguments], cwd=at, capture_output=True, text=True, check=True)
    return done.stdout


def repository(folder: Path, *options: str) -> Path:
    """Make a repository."""
    git("init", "--quiet", *options, str(folder))
    return folder


def events_in(place: Path, thread: str = "rel-1") -> list[int]:
    """Return the numbers of events of a thread's seals, sorted."""
    return sorted(seal.events for line in AnchoredLines([place], thread) if (seal := read_seal(line)))


def tips(place: Path) -> list[str]:
    """Return the names of the branches of nodes."""
    return git("for-each-ref", "--format=%(refname)", "refs/heads/seals", at=place).split()


@pytest.mark.parametrize("options", [("--bare",), (), ("--bare", "--object-format=sha256")])
async def test_seals_become_commits_that_git_finds_sound(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Each batch is one commit on the node's branch; a clone has the seals, and a packed repository takes more."""
    place = repository(tmp_path / "seals", *options)
    anchor = GitAnchor(place)
    await anchor.put(seal_of(1), seal_of(2), seal_of(1, thread="rel-2"))
    git("gc", "--quiet", at=place)
    git("pack-refs", "--all", at=place)
    await anchor.put(seal_of(3))
    (branch,) = tips(place)
    assert git("rev-list", "--count", branch, at=place) == "2\n"
    assert git("fsck", "--strict", "--no-dangling", at=place) == ""
    git("clone", "--quiet", str(place), str(tmp_path / "clone"))
    for each in (place, tmp_path / "clone"):
        assert (events_in(each), events_in(each, "rel-2"), events_in(each, "rel-3")) == ([1, 2, 3], [1], [])
    assert not (place / "index").exists()
    assert git("status", "--porcelain", at=tmp_path / "clone") == ""


async def test_verify_reads_the_seals_of_a_repository(tmp_path: Path) -> None:
    """A log that fits passes, one that was rewritten does not; what is no repository is refused by its name."""
    place = repository(tmp_path / "seals", "--bare")
    await GitAnchor(place).put(*(seal_of(number) for number in range(1, 10)))
    here = Settings.from_env({"HOLDFAST_ANCHORS": f"git:{place}"}, root=tmp_path)
    for given in (given_anchors(here, (), [NODE]), given_anchors(here, [Path(f"git:{place}")], [NODE])):
        assert given is not None
        seals = find_seals(given, "rel-1")
        assert (compare(seals, dict(list(LOG.items())[:9])).faults, seals.odd) == ((), [])
        assert compare(seals, dict.fromkeys(range(9), "a" * 64)).faults
    with pytest.raises(SettingsError, match=r"no git repository.*name a clone"):
        given_anchors(here, [Path("git:https://git.example/seals.git")], ())
    checks = [
        anchors_check(Settings.from_env({"HOLDFAST_ANCHORS": f"git:{each}"}, root=tmp_path))
        for each in (place, tmp_path)
    ]
    assert [check.status for check in checks if check] == ["open", "missing"]


APPEND = """
import asyncio, sys
from pathlib import Path
from holdfast.runtime.anchors.git import GitAnchor
from tests.security.test_hostile_anchors import seal_of
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    asyncio.run(GitAnchor(Path(sys.argv[1])).put(seal_of(number)))
"""


async def test_workers_that_commit_at_the_same_time_lose_no_seal(tmp_path: Path) -> None:
    """Two processes of one node take turns on its branch; another node has its own, and waits for neither."""
    place = repository(tmp_path / "seals", "--bare")
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", APPEND, str(place), *each)
        for each in (("1", "40"), ("40", "80"))
    ]
    other = make_seal(OTHER, namespace="default", thread="rel-1", events=80, head=LOG[79], at=AT)
    await GitAnchor(place).put(other)
    assert [await process.wait() for process in started] == [0, 0]
    assert (events_in(place), len(tips(place))) == (list(range(1, 81)), 2)
    assert sum(int(git("rev-list", "--count", branch, at=place)) for branch in tips(place)) == 80
    assert git("fsck", "--strict", at=place) == ""


async def test_a_worker_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Git's lock on the branch, and one on the index, that nobody holds any more, stop no seal; a fresh one does."""
    place = repository(tmp_path / "seals")
    anchor = GitAnchor(place)
    await anchor.put(seal_of(1))
    (branch,) = tips(place)
    lock = place / ".git" / f"{branch}.lock"
    lock.touch()
    (place / ".git" / "index.lock").touch()
    (place / ".git" / "objects" / "tmp_obj_left").write_bytes(b"torn")
    with pytest.raises(MemoryRefused, match="another git process holds"):
        await anchor.put(seal_of(2))
    old = time.time() - 3600
    os.utime(lock, (old, old))
    await anchor.put(seal_of(2))
    assert (events_in(place), lock.exists()) == ([1, 2], False)


def hostile_settings(git_folder: Path, marker: Path) -> None:
    """Have a repository run a program wherever git lets one."""
    run = f"touch {marker}; false"
    hooks = git_folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-commit", "pre-commit", "post-index-change", "pre-push", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\n{run}\n")
        (hooks / name).chmod(0o755)
    (git_folder / "config").write_text(
        "[core]\n\trepositoryFormatVersion = 0\n"
        + "".join(f'\t{key} = "{run}"\n' for key in ("fsmonitor", "sshCommand", "pager", "editor", "askPass"))
        + f'\thooksPath = {hooks}\n[include]\n\tpath = /dev/zero\n[alias]\n\tcat-file = "!{run}"\n'
        + f'[core]\n\talternateRefsCommand = "{run}"\n'
    )


@pytest.mark.parametrize("options", [("--bare",), ()])
async def test_a_repository_runs_nothing_here(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Its hooks, aliases and settings are run neither by a worker nor by a verifier; an endless include is not read."""
    place, marker = repository(tmp_path / "seals", *options), tmp_path / "ran"
    hostile_settings(git_folder(place), marker)
    await GitAnchor(place).put(seal_of(1))
    assert (events_in(place), marker.exists()) == ([1], False)


async def test_links_pipes_and_devices_in_a_repository_are_followed_nowhere(tmp_path: Path) -> None:
    """What others put in the place of a branch or of objects gets no seal and keeps nobody waiting."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine\n")
    first = repository(tmp_path / "first", "--bare")
    await GitAnchor(first).put(seal_of(1))
    (branch,) = tips(first)
    node = branch.rpartition("/")[2]
    makes: list[tuple[str, Callable[[Path], None]]] = [
        (branch, lambda path: path.symlink_to(victim / "file")),
        (branch, os.mkfifo),
        (f"{branch}.lock", lambda path: path.symlink_to(victim / "made")),
        ("refs/heads/seals", lambda path: path.symlink_to(victim)),
        ("objects", lambda path: path.symlink_to(victim)),
        (f"holdfast-{node}.lock", lambda path: path.symlink_to(victim / "made")),
        ("config", os.mkfifo),
        ("packed-refs", lambda path: path.symlink_to("/dev/zero")),
    ]
    for number, (name, make) in enumerate(makes):
        place = repository(tmp_path / f"seals-{number}", "--bare")
        odd = place / name
        odd.parent.mkdir(parents=True, exist_ok=True)
        if odd.is_dir():
            odd.rename(tmp_path / f"moved-{number}")
        odd.unlink(missing_ok=True)
        make(odd)
        with pytest.raises((MemoryRefused, OSError)):
            await asyncio.wait_for(GitAnchor(place).put(seal_of(1)), 30)
    assert ([path.name for path in victim.iterdir()], (victim / "file").read_text()) == (["file"], "mine\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".git").symlink_to(first)
    with pytest.raises(MemoryRefused, match="leads to one elsewhere"):
        await GitAnchor(tmp_path / "linked").put(seal_of(1))


async def test_a_verifier_waits_for_no_pipe_among_the_objects(tmp_path: Path) -> None:
    """It names what is there instead of reading it, for git would open a pipe and wait."""
    place = repository(tmp_path / "seals", "--bare")
    await GitAnchor(place).put(seal_of(1))
    (place / "objects" / "ab").mkdir(exist_ok=True)
    os.mkfifo(place / "objects" / "ab" / ("c" * 38))
    with pytest.raises(SettingsError, match="is a link, or not a regular file"):
        events_in(place)


async def test_a_clone_that_lacks_seals_says_so(tmp_path: Path) -> None:
    """One that borrows its objects is refused, for they may be out of reach; of a shallow one this is named."""
    place = repository(tmp_path / "seals", "--bare")
    for number in (1, 2):
        await GitAnchor(place).put(seal_of(number))
    (branch,) = tips(place)
    name = branch.removeprefix("refs/heads/")
    git("clone", "--quiet", "--shared", "--branch", name, str(place), str(tmp_path / "shared"))
    with pytest.raises(SettingsError, match="borrows objects"):
        events_in(tmp_path / "shared")
    git("clone", "--quiet", "--depth=1", "--branch", name, f"file://{place}", str(tmp_path / "shallow"))
    seals = find_seals(Anchors([tmp_path / "shallow"]), "rel-1")
    assert (events_in(tmp_path / "shallow"), ["shallow clone" in words for words in seals.odd]) == ([2], [True])


async def test_huge_files_and_commits_hide_no_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are not read; a commit larger than a batch of seals is left out, and named; forged lines do not count."""
    monkeypatch.setattr(git_seals, "MAX_COMMIT_BYTES", 100_000)
    place = repository(tmp_path / "seals")
    (place / "huge").write_bytes(b"\0" * 30_000_000)
    (place / "message").write_text(seal_of(900).line().decode() + "\n" + "x" * 200_000)
    (place / "forged").write_text(seal_of(5).model_copy(update={"head": "f" * 64}).line().decode())
    git("add", "huge", at=place)
    git("commit", "--quiet", "--file", "message", at=place)
    git("commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "--file", "forged", at=place)
    await GitAnchor(place).put(seal_of(7))
    seals = find_seals(Anchors([place], {NODE: None}), "rel-1")
    assert events_in(place) == [5, 7]
    found = compare(seals, dict(list(LOG.items())[:7]))
    words = [one.why for one in found.unchecked]
    assert (found.faults, found.seals) == ((), 1)
    assert [any(kind in why for why in words) for kind in ("larger than any batch", "did not sign")] == [True, True]


async def test_a_branch_that_was_rewritten_hides_no_seal_that_git_still_has(tmp_path: Path) -> None:
    """Commits that no branch leads to any more are read, too; and the node's next commit goes on from what is there."""
    place = repository(tmp_path / "seals", "--bare")
    anchor = GitAnchor(place)
    for number in (1, 2, 3):
        await anchor.put(seal_of(number))
    (branch,) = tips(place)
    git("update-ref", branch, f"{branch}~2", at=place)
    assert events_in(place) == [1, 2, 3]
    git("update-ref", "-d", branch, at=place)
    await anchor.put(seal_of(4))
    assert (events_in(place), git("rev-list", "--count", branch, at=place)) == ([1, 2, 3, 4], "1\n")


async def test_a_push_that_fails_is_made_good_and_is_never_forced(tmp_path: Path) -> None:
    """Seals wait in our own repository, across workers; a branch that was rewritten there stays, and is named."""
    far, own = repository(tmp_path / "far" / "seals.git", "--bare"), tmp_path / "home" / "own.git"
    with serving(far.parent) as (url, backend):
        backend.open = False
        first_remote = Remote(f"{url}/seals.git", own)
        anchor = GitAnchor(own, first_remote)
        await anchor.put(seal_of(1))
        assert await asyncio.to_thread(first_remote._push) != ""
        await asyncio.wait_for(anchor.aclose(), 30)
        assert (events_in(far), events_in(own)) == ([], [1])
        backend.open = True
        remote = Remote(f"{url}/seals.git", own)
        second = GitAnchor(own, remote)
        await second.put(seal_of(2))

        async def pushed() -> list[int]:
            return await asyncio.to_thread(events_in, far)

        assert await eventually(pushed, lambda events: len(events) == 2) == [1, 2]
        # Another state folder with the same key pushes to a branch of its own.
        third = GitAnchor(tmp_path / "home" / "third.git", Remote(f"{url}/seals.git", tmp_path / "home" / "third.git"))
        await third.put(seal_of(3))
        assert await eventually(pushed, lambda events: len(events) == 3) == [1, 2, 3]
        await asyncio.gather(second.aclose(), third.aclose())
        branch, _ = sorted(tips(far), key=lambda tip: int(git("rev-list", "--count", tip, at=far)), reverse=True)
        git("update-ref", branch, git("commit-tree", "-m", "mine", f"{branch}^{{tree}}", at=far).strip(), at=far)
        remote = Remote(f"{url}/seals.git", own)  # the one that was closed pushes no more
        fourth = GitAnchor(own, remote)
        await fourth.put(seal_of(4))
        why = await asyncio.to_thread(remote._push)
        assert ("was rewritten there" in why, git("log", "-1", "--format=%s", branch, at=far)) == (True, "mine\n")
        assert 4 in events_in(own)
        await fourth.aclose()


async def test_what_a_remote_needs_reaches_it_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push has no secret of the worker's, no variable of git's, no terminal, and no URL in its arguments."""
    seen = tmp_path / "seen"
    program = tmp_path / "git"
    program.write_text(f'#!/bin/sh\n{{ env; echo "$@"; tty; }} > {seen}\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setattr(git_remote, "git_program", lambda: str(program))
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch /tmp/pwned")
    remote = Remote("https://me:t0ken@git.example/seals.git", tmp_path / "own.git")
    await GitAnchor(tmp_path / "own.git", remote).put(seal_of(1))
    await remote.aclose()
    text = seen.read_text()
    assert [word in text for word in ("s3cret", "t0ken", "GIT_SSH_COMMAND", "not a tty", "push --porcelain")] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert (tmp_path / "own.git" / "config").stat().st_mode & 0o077 == 0


async def test_seals_gather_for_a_commit(tmp_path: Path) -> None:
    """A busy worker makes one commit for many seals; a missing repository stops no run."""
    place = tmp_path / "seals"
    async with Sealer(KEY, [GitAnchor(place)], namespace="default") as sealer:
        await sealer.seal("rel-0", 1, LOG[0])
        repository(place, "--bare")
        await asyncio.gather(*(sealer.seal(f"rel-{number}", 1, LOG[0]) for number in range(1, 60)))

        async def kept() -> list[list[int]]:
            return await asyncio.to_thread(lambda: [events_in(place, f"rel-{number}") for number in (0, 1, 59)])

        assert await eventually(kept, all) == [[1], [1], [1]]
    (branch,) = tips(place)
    assert int(git("rev-list", "--count", branch, at=place)) < 10


def test_a_seal_of_a_reset_is_committed_like_any_other(tmp_path: Path) -> None:
    """That a log is gone accounts for its seals, from a repository, too."""
    place = repository(tmp_path / "seals", "--bare")
    later = AT + timedelta(seconds=9)
    gone: NodeSeal = make_seal(KEY, namespace="default", thread="rel-1", events=9, head=LOG[8], at=later, gone="reset")
    asyncio.run(GitAnchor(place).put(seal_of(9), gone))
    log = dict.fromkeys(range(5), "b" * 64)
    found = compare(find_seals(Anchors([place], {public_key(KEY): None}), "rel-1", namespace="default"), log)
    assert not found.faults


async def test_a_worker_that_stops_leaves_no_push_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push that hangs is killed with the programs that it has started: the worker's threads end, and so do they."""
    monkeypatch.setattr(git_remote, "LEAVE_SECONDS", 0.1)
    started, program = tmp_path / "started", tmp_path / "git"
    program.write_text(f"#!/bin/sh\nsleep 50 &\necho $! > {started}.new; mv {started}.new {started}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(git_remote, "git_program", lambda: str(program))
    remote = Remote("https://git.example/seals.git", tmp_path / "own.git")
    await GitAnchor(tmp_path / "own.git", remote).put(seal_of(1))

    async def begun() -> bool:
        return started.exists()

    assert await eventually(begun, bool)
    await remote.aclose()

    async def gone() -> bool:
        stat = Path(f"/proc/{started.read_text().strip()}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    assert await eventually(gone, bool)
    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 30)


async def test_seals_that_were_pushed_count_as_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where packing our own repository takes too long."""
    monkeypatch.setattr(git_remote, "SECONDS", 1.0)
    program = tmp_path / "git"
    program.write_text('#!/bin/sh\ncase "$*" in *" gc "*) exec sleep 50;; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr(git_remote, "git_program", lambda: str(program))
    remote = Remote("https://git.example/seals.git", tmp_path / "own.git")
    remote.folder()
    assert await asyncio.to_thread(remote._push) == ""


def test_doctor_says_where_git_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push needs it, and would fail for as long as the worker runs."""
    settings = Settings.from_env({"HOLDFAST_ANCHORS": "git:https://git.example/seals.git"}, root=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = anchors_check(settings)
    assert check is not None
    assert (check.status, "install git" in check.detail) == ("missing", True)


async def test_a_repository_is_read_for_as_long_as_the_caller_allows(tmp_path: Path) -> None:
    """All its commits are read for one thread: a gateway gives that less time than a verifier."""
    place = repository(tmp_path / "seals", "--bare")
    await GitAnchor(place).put(seal_of(1))
    with pytest.raises(SettingsError, match="took too long"):
        find_seals(Anchors([place], seconds=0), "rel-1")
