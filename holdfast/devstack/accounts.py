"""The account that runs PostgreSQL when we are root, because PostgreSQL refuses to run as root, and its permissions."""

import fcntl
import os
import pwd
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from holdfast.config.state_folder import ACCOUNT
from holdfast.devstack.processes import Report
from holdfast.errors import StackError


def for_server(folder: Path) -> int | None:
    """Return the user id that runs PostgreSQL when we are root: the owner of its data `folder`, or `ACCOUNT`.

    None if we are not root: PostgreSQL then runs as the current user.

    Raises:
        StackError: The account is missing and cannot be created.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and (owner := folder.stat().st_uid) != 0:
        return owner
    return _find_or_create()


def _find_or_create() -> int:
    """Return the id of `ACCOUNT`, creating it if needed, under a lock, because several stacks may start at once."""
    lock = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(KeyError):
            return pwd.getpwnam(ACCOUNT).pw_uid
        command = ["useradd", "-s", "/bin/bash", ACCOUNT]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return pwd.getpwnam(ACCOUNT).pw_uid
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        raise StackError(
            f"PostgreSQL refuses to run as root, and the account {ACCOUNT} cannot be created: {reason}. "
            "Create it, start as another user, or set DATABASE_URL to use your own server."
        ) from error
    finally:
        os.close(lock)


def make_private(folder: Path, account: int | None) -> None:
    """Create a folder that only `account` (and root) can enter, or check an existing one. None means the current user.

    Raises:
        StackError: The path is not a folder, or it belongs to another user, or it is open to others.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if account is not None:
            os.chown(folder, account, pwd.getpwuid(account).pw_gid)
    owner = os.geteuid() if account is None else account
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or status.st_mode & 0o077:
        raise StackError(
            f"{folder} is not a private folder of user id {owner}. Remove it, or set HOLDFAST_HOME to another "
            "folder (with a shorter path, if this folder is for the database's socket)."
        )


def admit(home: Path, account: int) -> None:
    """Let one account traverse the state folder, which stays closed to all others.

    Raises:
        StackError: The permissions of the folder cannot be changed.
    """
    try:
        os.chown(home, -1, pwd.getpwuid(account).pw_gid)
        home.chmod(0o710)
    except OSError as error:
        raise StackError(f"The account that runs PostgreSQL cannot enter {home}: {error}.") from error


def let_through(paths: list[Path], account: int, *, report: Report) -> None:
    """Let the account traverse the parent folders of each path (`chmod o+x`: traverse, not read).

    Raises:
        StackError: The permissions of a folder cannot be changed.
    """
    for folder in {parent for path in paths for parent in path.parents}:
        status = folder.stat()
        mode = status.st_mode
        admitted = mode & stat.S_IXGRP and status.st_gid == pwd.getpwuid(account).pw_gid
        if not mode & stat.S_IXOTH and not admitted:
            report(f"allowing the account that runs PostgreSQL to enter {folder} (chmod o+x)")
            try:
                folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
            except OSError as error:
                raise StackError(
                    f"The account that runs PostgreSQL cannot enter {folder}: {error}. "
                    "Set HOLDFAST_HOME to a folder that other users may enter, or do not start as root."
                ) from error
