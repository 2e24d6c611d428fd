"""Only its owner may read the state folder, which holds every run, every database and the keys."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.config.state_folder import make_private, write_private
from holdfast.core.tools.decorator import ToolContext
from holdfast.devstack.accounts import admit, for_server
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.encryption.fleet_keys import ensure_key
from holdfast.errors import StackError
from holdfast.examples.shared.folders import new_folder
from holdfast.workspace.file_tools import list_files, read_file, search_files, write_file
from holdfast.workspace.paths import OutsideWorkspace

REPOSITORY = Path(__file__).parents[2]
SOMEBODY = """
import os, sys
from pathlib import Path
from holdfast.config.state_folder import make_private
os.setgroups([]), os.setgid(54321), os.setuid(54321)
make_private(Path(sys.argv[1]), report=print)
"""


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set a permissive umask, and the usual one."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def ignore(line: str) -> None:
    """Discard a line of progress."""


def mode(path: Path) -> int:
    """Return the permissions of a path."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_nobody_else_reads_what_the_stack_writes(tmp_path: Path, umask: int) -> None:
    """Under any umask the state folder and all of its content are closed to others, including PostgreSQL's socket."""
    home = tmp_path / "state"
    servers = DevStack(home, usual=Ports(any_free(), any_free(), any_free()))
    stack = servers.start()
    try:
        # As root, PostgreSQL runs under its own account, whose group may only traverse the folder.
        assert mode(home) in (0o700, 0o710)
        assert mode(home) == 0o700 or (home / "postgres").stat().st_gid == home.stat().st_gid != 0
        with psycopg.connect(stack.database_url) as database:
            socket = Path(database.info.host) / ".s.PGSQL.5432"
        assert mode(socket) == mode(socket.parent) == 0o700
        seen = set()
        for folder, folders, files in os.walk(home):
            seen |= set(files)
            for name in folders:
                assert mode(Path(folder, name)) & 0o077 == 0, name
            for name in files:
                assert mode(Path(folder, name)) & 0o077 == 0, name
        assert {"stack.json", "stack.lock", "owner.lock", "temporal.db", "temporal.log", "web-ui.log"} <= seen
        before, lines = mode(home), list[str]()
        make_private(home, report=lines.append)  # as a worker without `--dev` does, also one that then fails
        assert (mode(home), lines) == (before, []), "PostgreSQL still reaches its data"
    finally:
        servers.stop()


def test_an_open_state_folder_is_closed(tmp_path: Path) -> None:
    """An earlier release's folder that is open to others is closed with its files, and a message says so."""
    home = tmp_path / "state"
    (home / "logs").mkdir(parents=True)
    (home / "workspaces").mkdir()
    for name in ("stack.json", "temporal.db", "temporal.db-wal", "logs/temporal.log"):
        (home / name).touch(mode=0o666)
    for path in (home, *home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (home / "owner.lock").symlink_to(outside := tmp_path / "outside")
    outside.touch()
    outside.chmod(0o644)

    lines: list[str] = []
    make_private(home, report=lines.append)

    assert lines == [f"closing the state folder {home} to other users (chmod 700)"]
    assert mode(home) == 0o700
    for path in home.rglob("*"):
        assert path.is_symlink() or mode(path) == (0o700 if path.is_dir() else 0o600)
    assert mode(outside) == 0o644  # a link leads to no other file
    make_private(home, report=lines.append)
    assert len(lines) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs under another account for root alone")
def test_a_start_beside_the_first_one_does_not_close_the_way_to_data_that_are_being_made(tmp_path: Path) -> None:
    """Two workers may begin in one folder; the second comes before the first has its database."""
    home = tmp_path / "state"
    lines: list[str] = []
    make_private(home, report=lines.append)
    account = for_server(home / "postgres")
    assert account is not None
    admit(home, account)
    make_private(home, report=lines.append)
    assert (mode(home), lines) == (0o710, [])


def test_a_folder_with_other_files_is_rejected_and_not_closed(tmp_path: Path) -> None:
    """`HOLDFAST_HOME=/tmp` by mistake must not close /tmp to others: the error says what to do."""
    home = tmp_path / "shared"
    home.mkdir()
    home.chmod(0o755)
    (home / "letter.txt").touch()

    with pytest.raises(StackError, match=r"open to other users.*HOLDFAST_HOME.*chmod 700"):
        DevStack(home).start()

    assert mode(home) == 0o755
    home.chmod(0o700)
    make_private(home, report=ignore)


def test_a_folder_in_which_a_demo_has_run_is_a_state_folder(tmp_path: Path) -> None:
    """`make demo` may be the first command in a checkout, and a worker the second."""
    home = tmp_path / ".holdfast"
    new_folder(home, "project").close()
    home.chmod(0o755)
    make_private(home, report=ignore)
    assert mode(home) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_rejected(tmp_path: Path) -> None:
    """The folder's owner could read and replace its content."""
    home = tmp_path / "theirs"
    home.mkdir(mode=0o700)
    os.chown(home, 12345, 12345)
    for above in home.parents[:-1]:
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)
    done = subprocess.run(
        [sys.executable, "-c", SOMEBODY, str(home)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert "belongs to user id 12345" in done.stderr, done.stderr


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path, umask: int) -> None:
    """It is created with restricted permissions; an existing link in its place is replaced, not followed."""
    (tmp_path / "target").touch(mode=0o644)
    (tmp_path / "key.tmp").symlink_to(tmp_path / "target")
    (tmp_path / "key").symlink_to(tmp_path / "target")

    write_private(tmp_path / "key", b"secret")

    assert (tmp_path / "key").read_bytes() == b"secret"
    assert not (tmp_path / "key").is_symlink()
    assert mode(tmp_path / "key") == 0o600
    assert (tmp_path / "target").read_bytes() == b""


async def test_file_tools_do_not_reach_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a workspace that contains the state folder, as a project does, keys are neither read, listed nor found."""
    home = tmp_path / ".holdfast"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    make_private(home, report=print)
    ensure_key(home)
    (tmp_path / "mine.txt").write_text("dev: is not the key")
    context = ToolContext(thread="t", workspace=tmp_path, key="k", attempt=1)
    for path in (".holdfast/fleet.keys", "x/../.holdfast/fleet.keys", str(home / "fleet.keys"), ".holdfast"):
        with pytest.raises(OutsideWorkspace, match="state folder"):
            read_file(path, context=context)
        with pytest.raises(OutsideWorkspace, match="state folder"):
            write_file(path, "dev:mine", context=context)
    assert "fleet.keys" not in list_files(context=context)
    matches = search_files("dev:", context=context)
    assert "mine.txt" in matches
    assert "fleet.keys" not in matches
    assert (home / ".gitignore").read_text() == "*\n"
