"""Reads a small file only if this user owns it and others cannot have written it."""

import errno
import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

_MAX_BYTES: Final = 65_536


class NotOwnFile(Exception):  # never shown to users: callers convert it
    """The file must not be used; the text says why, as the end of a sentence that begins with its path."""


def read_own_file(path: Path, *, private: bool, max_bytes: int = _MAX_BYTES) -> str:
    """Return the text of a file.

    Args:
        path: A regular file; links are rejected.
        private: Also reject a file that others can read.
        max_bytes: Reject a larger file.

    Raises:
        NotOwnFile: It must not be used.
        FileNotFoundError: There is none.
    """
    try:
        # O_NONBLOCK: a named pipe would block for ever.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            if fault := _fault(os.fstat(file), private=private, max_bytes=max_bytes):
                raise NotOwnFile(fault)
            return opened.read(max_bytes).decode()
    except UnicodeDecodeError:
        raise NotOwnFile("is not UTF-8 text") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise NotOwnFile(f"cannot be read: {reason}") from None


def _fault(state: os.stat_result, *, private: bool, max_bytes: int) -> str:
    if not stat.S_ISREG(state.st_mode):
        return "is not a regular file"
    if state.st_uid != os.geteuid():
        return f"belongs to another user (id {state.st_uid})"
    if private and state.st_mode & 0o077:
        return "can be read by other users: if you wrote it, `chmod 600` it"
    if state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and not _is_own_group(state)):
        return "can be written by other users: `chmod go-w` it"
    return f"has more than {max_bytes} bytes" if state.st_size > max_bytes else ""


def _is_own_group(state: os.stat_result) -> bool:
    """Whether a file's group is its owner's private group, which some systems create and make writable."""
    try:
        group = grp.getgrgid(state.st_gid)
        return group.gr_name == pwd.getpwuid(state.st_uid).pw_name and not group.gr_mem
    except KeyError:
        return False
