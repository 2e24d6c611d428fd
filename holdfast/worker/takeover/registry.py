"""The workers of this machine that share a task queue: a folder of files, named after their identities.

A file is a hint and never a proof: a forged one can only cause a check. A worker that shuts down in order removes its
file, so a file whose process is gone means that the worker died. The file holds the worker's offer, for people.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.worker.takeover.worker_identity import WorkerIdentity, parse_identity

FOLDER = "workers"
"""Below the state folder."""


_MAX_OFFER_BYTES = 65_536


class Offer(BaseModel):
    """The agents of a worker, as declared by itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    catalog: str
    """`package.module:attribute`."""
    agents: tuple[str, ...]
    """The names of its agents."""
    llm: str
    """The language model; `scripted` for none."""
    folder: str
    """The folder in which the worker was started."""
    digest: str = ""
    """The digest of its agents, as runs record them; empty for a worker of an older release."""

    def differs(self, other: "Offer") -> bool:
        """Whether another worker has other agents, so that a run depends on which worker takes it."""
        if self.digest and other.digest:
            return self.digest != other.digest
        return (self.catalog, self.agents) != (other.catalog, other.agents)

    def __str__(self) -> str:
        """Return text for people: the end of a sentence that begins with the worker."""
        return f"offers {', '.join(self.agents)} from {self.catalog}, and was started in {self.folder}"


class WorkerRegistry:
    """The workers of one task queue that share a state folder.

    Args:
        home: The state folder; created if missing, closed to other users.
        queue: Identifies the task queue: the server's address, the namespace and the queue's name.

    Raises:
        OSError: The folder cannot be created, or other users can write to it.
    """

    def __init__(self, home: Path, *queue: str) -> None:
        self._folder = home / FOLDER
        self._prefix = hashlib.sha256("\n".join(queue).encode()).hexdigest()[:16]
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        with self._open():
            pass

    def add(self, identity: WorkerIdentity, offer: Offer | None = None) -> None:
        """Register a worker and its offer.

        Raises:
            OSError: The file cannot be written.
        """
        with self._open() as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._name(identity), flags, 0o600, dir_fd=folder), "w") as file:
                file.write(offer.model_dump_json() if offer else "")

    def offer(self, identity: WorkerIdentity) -> Offer | None:
        """Return a worker's offer; None if it declares none, or runs on another machine."""
        try:
            with self._open() as folder:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(self._name(identity), flags, dir_fd=folder), "rb") as file:
                    return Offer.model_validate_json(file.read(_MAX_OFFER_BYTES))
        except (OSError, ValidationError):
            return None

    def remove(self, identities: Iterable[WorkerIdentity]) -> None:
        """Remove workers; unknown ones are ignored.

        Raises:
            OSError: A file cannot be removed.
        """
        with self._open() as folder:
            for identity in identities:
                with suppress(FileNotFoundError):
                    os.unlink(self._name(identity), dir_fd=folder)

    def workers(self) -> list[WorkerIdentity]:
        """Return all registered workers. Files with other names are ignored.

        Raises:
            OSError: The folder cannot be read.
        """
        with self._open() as folder:
            names = [name.partition(".") for name in os.listdir(folder)]  # noqa: PTH208  # of the open folder
        identities = [parse_identity(identity) for prefix, _, identity in names if prefix == self._prefix]
        return [identity for identity in identities if identity is not None]

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Hold the lock for a sweep during the block; yields False if another process has it. It ends with the process.

        Raises:
            OSError: The lock file cannot be created.
        """
        with self._open() as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(f"{self._prefix}.lock", flags, 0o600, dir_fd=folder)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield False
                else:
                    yield True
            finally:
                os.close(file)

    def _name(self, identity: WorkerIdentity) -> str:
        return f"{self._prefix}.{identity}"

    @contextmanager
    def _open(self) -> Iterator[int]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            state = os.fstat(folder)
            if state.st_uid != os.geteuid() or state.st_mode & 0o022:
                raise PermissionError(f"other users can write to {self._folder}; remove it, or run `chmod 700` on it")
            yield folder
        finally:
            os.close(folder)
