"""Server processes of the embedded stack: start one detached, recognise one, stop one.

A process is recognised by its command line, never by its id alone: ids are reused.
"""

import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import psutil

from holdfast.errors import StackError

Report = Callable[[str], None]
"""Receives one line of progress, for a person."""


def spawn(
    argv: Sequence[str], log: Path, *, environ: Mapping[str, str], account: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a server in a separate session, so that a Ctrl-C in the terminal cannot reach it.

    Its output goes to the file `log`; the output of the previous start is kept beside it as `<log>.1`.
    With `account` (a user id; needs root) it runs as that user, in that user's group.

    Raises:
        OSError: The program cannot be run or the log cannot be written.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        log.replace(log.with_name(log.name + ".1"))
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
            umask=0o077,  # regardless of ours: other users cannot read its files
            **identity(account),
        )
    # Reaps the server when it ends: a zombie would look like a running process.
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()
    return process


class Identity(TypedDict, total=False):
    """The arguments of `subprocess` that set the user of a program."""

    user: int
    group: int
    extra_groups: list[int]


def identity(account: int | None) -> Identity:
    """Return the arguments that make `subprocess` run a program as user id `account`; none for None."""
    if account is None:
        return {}
    return {"user": account, "group": pwd.getpwuid(account).pw_gid, "extra_groups": []}


def find(program: str, argument: str, *, hint: int | None = None, account: int | None = None) -> psutil.Process | None:
    """Return the running process of `program` that has `argument` on its command line, or None.

    `python` also finds `python3` and `python3.12`. Only processes of the user id `account` (by default our own)
    count, because another user can start a program with any command line.

    The process id `hint` is tried first; if it does not match, all processes are searched.
    """

    def matches(process: psutil.Process) -> bool:
        argv = command_line(process)
        same = bool(argv) and Path(argv[0]).name.startswith(program) and argument in argv[1:]
        return same and _owner(process) == (os.geteuid() if account is None else account)

    if hint is not None:
        with suppress(psutil.NoSuchProcess, ValueError):
            if matches(process := psutil.Process(hint)):
                return process
    return next(filter(matches, psutil.process_iter()), None)


def _owner(process: psutil.Process) -> int | None:
    try:
        return process.uids().effective
    except psutil.Error:
        return None


def find_child(child: "subprocess.Popen[bytes]") -> psutil.Process | None:
    """Return the process of a child; None if it has ended already."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(child.pid)
    return None


def command_line(process: psutil.Process) -> list[str]:
    """Return the arguments of a process; empty if it has ended or access is denied."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def left_in(folder: Path, program: str) -> list[psutil.Process]:
    """Return the running processes of `program` whose working directory is `folder`."""
    matching = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == program and Path(process.cwd()) == folder:
                matching.append(process)
    return matching


def stop(process: psutil.Process, signals: Sequence[signal.Signals], *, grace: float) -> None:
    """End a process: send each signal in turn and wait up to `grace` seconds after each, then SIGKILL.

    psutil refuses to signal a process id that has been reused, so no other process is affected.
    """
    for number in (*signals, signal.SIGKILL):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if not outliving([process], timeout=grace):
            return


def outliving(waited: Sequence[psutil.Process], *, timeout: float) -> list[psutil.Process]:
    """Wait up to `timeout` seconds for processes to end; return those still running.

    A zombie counts as ended: in a container, no process may reap orphans.
    """
    deadline = time.monotonic() + timeout
    while (alive := [each for each in waited if _alive(each)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return alive


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pause_while_starting(
    where: str, pid: int, log: Path, *, ended: bool, deadline: float, cancelled: threading.Event
) -> None:
    """Wait a moment for a server that is still starting.

    Args:
        where: The server, for errors.
        pid: Its process id.
        log: Its log file.
        ended: Whether its process has ended.
        deadline: In seconds of `time.monotonic()`.
        cancelled: Set when the start is interrupted.

    Raises:
        StackError: It has ended, missed the deadline, or the start was interrupted.
    """
    if ended:
        raise StackError(f"{where} ended while starting. The last lines of {log}:\n{tail(log)}")
    if time.monotonic() > deadline:
        raise StackError(f"{where} does not answer. See {log}, stop it with `kill {pid}`, and start again.")
    if cancelled.wait(0.01):
        raise StackError(f"{where}: start-up was interrupted.")


def tail(log: Path, *, lines: int = 15) -> str:
    """Return the last lines of a log, indented for an error message."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (the log is empty)"


PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
    | {"DYLD_LIBRARY_PATH"}
)
"""The variables that hold no secrets."""


def environment() -> dict[str, str]:
    """Return the part of our environment that servers receive: without our secrets and without their own settings."""
    return {name: value for name, value in os.environ.items() if name in PASSED or name.startswith("LC_")}
