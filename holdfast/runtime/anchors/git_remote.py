"""Pushes the commits of a git anchor to another machine, from a repository of our own in the state folder.

1. The repository is ours alone, so git may open it. The remote is in its configuration, and in no list of processes.
2. Only https and ssh are spoken: a push to a path would run that repository's hooks here. Nothing is ever fetched.
3. Each such repository has branches of its own on the remote. So a push is refused only where somebody has rewritten
   one; it is never forced, and the commits stay here.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from holdfast.runtime.memory import git_files
from holdfast.runtime.memory.git import GitFailed, git_program

SECONDS = 60.0
"""Time limit of a push."""
LEAVE_SECONDS = 5.0
"""How long a worker that stops waits for a push."""
LONGEST_PAUSE = 60.0
"""Most seconds between attempts at a remote that does not answer; the first pause is a second."""

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY")
_ID = "holdfast-id"

log = structlog.get_logger(__name__)


class Remote:
    """A repository on another machine.

    Args:
        url: Begins with `https://` or `ssh://`; may contain a secret.
        home: The folder of our own repository, below the state folder; made if it is missing.
    """

    def __init__(self, url: str, home: Path) -> None:
        self.host = urlsplit(url).hostname or ""
        self._url = url
        self._home = home
        self._committed = asyncio.Event()
        self._done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def folder(self) -> Path:
        """Return our own repository.

        Raises:
            OSError: It cannot be made.
        """
        if not self._home.is_dir():
            self._home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._home.parent) as made:
                new = Path(made, "new")
                for name in ("objects/info", "objects/pack", "refs/heads"):
                    (new / name).mkdir(parents=True)
                (new / "HEAD").write_text("ref: refs/heads/main\n")
                (new / "config").touch(0o600)
                (new / "config").write_text(_configuration(self._url))
                (new / _ID).write_text(os.urandom(4).hex())
                with suppress(OSError):  # another worker was first
                    new.rename(self._home)
        return self._home

    def id(self) -> str:
        """Return what distinguishes our branches from those of other state folders with the same key."""
        return (git_files.read(self.folder(), _ID) or b"").decode("ascii")

    def push_soon(self) -> None:
        """Have all commits pushed; nothing waits for it."""
        self._done.clear()
        self._committed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Wait for a push that is under way, if that is quick."""
        if self._task is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), LEAVE_SECONDS)
        if not self._done.is_set():
            log.warning("seals_not_pushed", anchor=self.host, kept_in=str(self._home))
        self._task.cancel()
        self._closed = True  # and a thread cannot be cancelled
        if self._process:
            _kill(self._process)
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._committed.wait()
            self._committed.clear()
            pause = 1.0
            while why := await asyncio.to_thread(self._push):
                log.warning("anchor_unreachable", anchor=self.host, reason=why, kept_in=str(self._home))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            if not self._committed.is_set():
                self._done.set()

    def _push(self) -> str:
        """Push all branches; return why that failed, without the URL."""
        try:
            code, said = self._git("push", "--porcelain", "anchor", "refs/heads/seals/*:refs/heads/seals/*")
            if not code:
                with suppress(subprocess.TimeoutExpired):  # what was pushed is there, however much there is to pack
                    self._git("gc", "--auto", "--quiet")
                return ""
        except subprocess.TimeoutExpired:
            return f"it took longer than {SECONDS:g} s"
        except (OSError, GitFailed) as error:
            return str(error)
        words = said.replace(self._url, self.host)
        if "(non-fast-forward)" in words or "(fetch first)" in words:
            return "a branch of ours was rewritten there: keep it as evidence under another name, and delete it"
        lines = [line for line in words.splitlines() if line.startswith(("!", "fatal:", "error:", "remote:"))]
        return (lines[-1] if lines else words)[:300].strip() or f"git push ended with {code}"

    def _git(self, *arguments: str) -> tuple[int, str]:
        """Run git in our repository; return its exit code and what it printed.

        Raises:
            subprocess.TimeoutExpired: It took longer than `SECONDS`.
            OSError: It cannot be started.
        """
        options = ["core.hooksPath=/dev/null", "core.askPass=", "gc.autoDetach=false", f"safe.directory={self._home}"]
        process = subprocess.Popen(
            [git_program(), *(part for option in options for part in ("-c", option)), *arguments],
            env=_environment(self._home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # without a terminal, ssh asks nobody
        )
        self._process = process
        if self._closed:
            _kill(process)
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise
        finally:
            self._process = None
        return process.returncode, said.decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git, and what it started: ssh holds the pipe, too."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _configuration(url: str) -> str:
    quoted = url.replace("\\", "\\\\").replace('"', '\\"')
    return f'[core]\n\trepositoryFormatVersion = 0\n\tbare = true\n[remote "anchor"]\n\turl = "{quoted}"\n'


def _environment(folder: Path) -> dict[str, str]:
    """Git's complete environment: the user's keys and settings, and none of the worker's secrets."""
    return {
        **{name: os.environ[name] for name in (*_PASSED, *_PROXIES) if name in os.environ},
        "GIT_DIR": str(folder),
        "GIT_ALLOW_PROTOCOL": "http:https:ssh",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
