"""The state folder is closed to other users: 0700, and what we put there 0600, under any umask."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.errors import StackError

_MARKS = frozenset({"stack.json", "stack.lock", "temporal.db", "workspaces", "artifacts"})
"""A folder that has one of these is a state folder already."""
_OURS = _MARKS | {
    ".gitignore",
    "fleet.keys",
    "owner.lock",
    "logs",
    "workers",
    "temporal.db-wal",
    "temporal.db-shm",
    "temporal.db-journal",
}
_ENTER = 0o010


def make_private(home: Path, *, say: Callable[[str], None], group: int | None = None) -> None:
    """Create the state folder, or close an existing one, and what is ours in it, to everybody else.

    Args:
        home: The state folder.
        say: Receives a line when something was open.
        group: A group that may pass through the folder: that of the account that runs PostgreSQL for root.

    Raises:
        StackError: The folder is somebody else's, or it is open to others and not ours to close.
        OSError: It cannot be created or changed.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = home.stat()
    if state.st_uid != os.geteuid() and os.geteuid() != 0:
        raise StackError(
            f"The state folder {home} belongs to user id {state.st_uid}. Set HOLDFAST_HOME to a folder of your own."
        )
    allowed = 0o700 | (_ENTER if group is not None and state.st_gid == group else 0)
    if state.st_mode & 0o777 & ~allowed:
        names = {entry.name for entry in home.iterdir()}
        if names and not names & _MARKS:
            raise StackError(
                f"The state folder {home} is open to other users, and holds other files than ours. "
                f"Set HOLDFAST_HOME to an empty folder, or close this one: chmod 700 {home}"
            )
        say(f"closing the state folder {home} to other users (chmod {allowed:o})")
    home.chmod(state.st_mode & allowed | 0o700)
    with suppress(FileExistsError), (home / ".gitignore").open("x") as ignored:
        ignored.write("*\n")  # where a project's repository has it inside, keys and databases are not committed
    for path in _ours(home):
        with suppress(FileNotFoundError):  # SQLite's own files come and go
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(0o700)
            elif stat.S_ISREG(mode):
                path.chmod(0o600)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read; one that is there is replaced, never half written.

    Raises:
        OSError: It cannot be written.
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
    """`HOLDFAST_HOME`; without it, `.holdfast` beside `worker.py` and `starter.py`, which both set it."""
    named = os.environ.get("HOLDFAST_HOME")
    return Path(named).expanduser().absolute() if named else Path(__file__).parents[3] / ".holdfast"
