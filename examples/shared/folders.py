"""The files of a demo: a separate folder under `<state folder>/demo`, never that of a running stack.

A new demo removes the folders of earlier ones, unless their demo or their servers still run.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from holdfast.devstack.postgres import Postgres
from holdfast.devstack.temporal_server import TemporalServer

_HOME = "home"
_LOCK = "demo.lock"


@dataclass(frozen=True)
class DemoFolder:
    """The files of one demo."""

    path: Path
    project: str
    """The name of the agent's repository."""
    _lock: IO[bytes] = field(repr=False)
    """Held while the demo runs."""

    def close(self) -> None:
        """Release the folder: a later demo may remove it, unless servers run there."""
        self._lock.close()

    @property
    def home(self) -> Path:
        """The state folder of the demo's stack: `HOLDFAST_HOME`."""
        return self.path / _HOME

    @property
    def logs(self) -> Path:
        """The output of the demo's workers."""
        return self.path / "logs"

    @property
    def repository(self) -> Path:
        """The repository that the agent works in."""
        return self.path / self.project


def new_folder(state: Path, project: str) -> DemoFolder:
    """Create the folder of a new demo, and remove earlier ones.

    Args:
        state: The state folder.
        project: The name of the agent's repository.

    Raises:
        OSError: The folder cannot be created.
    """
    demos = state.resolve() / "demo"
    demos.mkdir(parents=True, exist_ok=True)
    path = demos / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"  # noqa: DTZ005  # for people: local time
    path.mkdir()
    lock = _try_lock(path)
    assert lock is not None, "the folder is new"
    for earlier in demos.iterdir():
        if earlier != path and (earlier / _LOCK).exists():
            _remove_unless_used(earlier)
    return DemoFolder(path, project, lock)


def _remove_unless_used(demo: Path) -> None:
    with suppress(OSError):
        if (lock := _try_lock(demo)) is None:
            return
        with lock:
            home = demo / _HOME
            if not any(server.find() for server in (TemporalServer(home, report=print), Postgres(home, report=print))):
                shutil.rmtree(demo, ignore_errors=True)


def _try_lock(demo: Path) -> IO[bytes] | None:
    """Lock the folder until the lock is closed or the process ends; None if another process holds the lock."""
    file = (demo / _LOCK).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
