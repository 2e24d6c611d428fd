"""The registry of workers is only a hint: a forged entry ends no claim of a live worker."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.registry import WorkerRegistry
from holdfast.worker.takeover.worker_identity import WorkerIdentity

ME = WorkerIdentity("build-7", "0" * 16, 4711, 1)


def test_a_queue_has_its_own_workers(tmp_path: Path) -> None:
    """A registered worker is visible to workers of the same queue until it leaves, and to no others."""
    ours, theirs = WorkerRegistry(tmp_path, "host", "queue"), WorkerRegistry(tmp_path, "host", "other")
    ours.add(ME)
    ours.add(ME)
    assert WorkerRegistry(tmp_path, "host", "queue").workers() == [ME]
    assert theirs.workers() == []
    ours.remove([ME, replace(ME, pid=1)])
    assert ours.workers() == []


def test_unknown_file_names_are_ignored(tmp_path: Path) -> None:
    """The folder may contain files with any name, and contains the lock."""
    registry = WorkerRegistry(tmp_path, "queue")
    registry.add(ME)
    (name,) = (path.name for path in (tmp_path / "workers").iterdir())
    for forged in ("x", ".", name + "0" * 30, name.upper(), name.replace("4711", "-1"), name.partition(".")[0] + ".a"):
        if forged != ".":
            (tmp_path / "workers" / forged).mkdir()
    with registry.try_lock() as alone:
        assert alone
        assert registry.workers() == [ME]


@pytest.mark.skipif(this_process() is None, reason="processes are proved to be gone on Linux only")
def test_a_forged_file_ends_no_claim_of_a_live_worker(tmp_path: Path) -> None:
    """A live worker's process is checked, whatever its file says; one on another machine cannot be checked."""
    me = this_process()
    assert me is not None
    registry = WorkerRegistry(tmp_path, "queue")
    registry.add(me)
    registry.add(replace(me, scope="f" * 16, pid=2**32 - 1))
    assert [each for each in registry.workers() if is_gone(each, seen_from=me)] == []


def test_a_link_in_place_of_the_folder_is_rejected(tmp_path: Path) -> None:
    """Nothing is created or removed behind a link."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "workers").symlink_to(elsewhere)
    with pytest.raises(OSError, match="workers"):
        WorkerRegistry(tmp_path, "queue")


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """Neither a worker's file nor the lock opens a planted link."""
    registry = WorkerRegistry(tmp_path, "queue")
    registry.add(ME)
    with registry.try_lock():
        pass
    for path in list((tmp_path / "workers").iterdir()):
        path.unlink()
        path.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        registry.add(ME)
    with pytest.raises(OSError, match="symbolic"), registry.try_lock():
        pass
    registry.remove([ME])
    assert not (tmp_path / "target").exists()


def test_a_folder_that_others_can_write_is_rejected(tmp_path: Path) -> None:
    """It is created for this user alone; if it is opened to others, it is not read, and the error says what to do."""
    registry = WorkerRegistry(tmp_path, "queue")
    folder = tmp_path / "workers"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        registry.workers()


def test_one_process_sweeps_at_a_time(tmp_path: Path) -> None:
    """While one process holds the lock on dead workers, another one is rejected at once, and may sweep afterwards."""
    mine, other = WorkerRegistry(tmp_path, "queue"), WorkerRegistry(tmp_path, "queue")
    with mine.try_lock() as first, other.try_lock() as second:
        assert (first, second) == (True, False)
    with other.try_lock() as alone:
        assert alone


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_rejected(tmp_path: Path) -> None:
    """The folder's owner could put any file there."""
    (tmp_path / "workers").mkdir(mode=0o700)
    os.chown(tmp_path / "workers", 12345, -1)
    with pytest.raises(PermissionError):
        WorkerRegistry(tmp_path, "queue")
