"""The tutorials, carried out as printed: their files, and their commands in their order.

A command that starts the worker runs until `kill -KILL $!` or the end of the page, as it does in a first terminal. The
test carries out both itself. `pip install` is left out.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, files, snippets
from tests.support.processes import reserve_ports

SECONDS = 120.0


class Terminals:
    """Carries out a page's commands in a folder, as a reader does.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""
        self._worker: subprocess.Popen[bytes] | None = None
        self._path = folder / "bin"
        self._path.mkdir()
        command = self._path / "holdfast"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
        command.chmod(0o700)
        reserve_ports(folder / ".holdfast")

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of a reader who has installed Holdfast."""
        path = f"{self._path}{os.pathsep}{os.environ['PATH']}"
        keys = {"HOLDFAST_HOME": str(self.folder / ".holdfast"), "PYTHONPATH": str(ROOT), "PATH": path}
        patience = "10" if self._worker is None else "60"  # a worker may be slow
        return {**os.environ, **keys, "HOLDFAST_ANSWER_SECONDS": patience}

    def run(self, line: str) -> None:
        """Carry out a command."""
        if " worker --dev" in line:
            self._start(line)
        elif line == "kill -KILL $!":
            self.kill(signal.SIGKILL)
        elif not line.startswith("pip install"):
            self.printed += self.output(line)
            if match := re.search(r"\bcd (\w+)$", line):
                self.folder = self.folder / match[1]

    def output(self, line: str) -> str:
        """Carry out a command; return its output."""
        ran = subprocess.run(
            line, shell=True, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=SECONDS
        )
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _start(self, line: str) -> None:
        log = self._path / "worker.log"
        arguments = shlex.split(line.removesuffix("&"))
        with log.open("wb") as output:
            self._worker = subprocess.Popen(
                ["env", *arguments],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        until(lambda: "\nReady" in log.read_text() or self._worker is None or self._worker.poll() is not None)
        assert self._worker.poll() is None, log.read_text()

    def kill(self, number: signal.Signals) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.send_signal(number)
            self._worker.wait(SECONDS)
            self._worker = None


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    """Yield terminals in an empty folder, and stop their servers at the end."""
    opened = Terminals(tmp_path)
    try:
        yield opened
    finally:
        opened.kill(signal.SIGINT)


def carry_out(
    terminals: Terminals,
    page: str,
    waits: Mapping[str, Callable[[], object]],
    *,
    edits: Mapping[str, str] | None = None,
) -> None:
    """Carry out a tutorial, its files with these edits; before a command, wait as its reader would."""
    for snippet in snippets(DOCS / page):
        if snippet.file:
            code = snippet.code
            for old, new in (edits or {}).items() if snippet.language == "python" else ():
                assert old in code
                code = code.replace(old, new)
            (terminals.folder / snippet.file).write_text(code, encoding="utf-8")
        elif snippet.language == "sh":
            for line in snippet.code.splitlines():
                until(waits.get(line, lambda: True))
                terminals.run(line)


def test_the_readme_is_the_first_tutorial() -> None:
    """The README has the commands and files of the first tutorial, which `tests/package/test_newcomer.py` plays."""
    tutorial = DOCS / "tutorial/first-agent.md"
    typed = {line for each in snippets(tutorial) if each.language == "sh" for line in each.code.splitlines()}
    readme = ROOT / "README.md"
    assert {line for each in snippets(readme) if each.language == "sh" for line in each.code.splitlines()} <= typed
    assert files(readme) == files(tutorial)


@pytest.mark.slow
def test_approvals_and_recovery(terminals: Terminals) -> None:
    """The worker is killed twice, the decision is kept, and the invoice is paid once."""

    def paid() -> bool:
        file = terminals.folder / "payments.txt"
        return file.exists() and file.read_text() != ""

    waits = {
        "holdfast pending pay-1": lambda: "running" not in terminals.output("holdfast show pay-1"),
        "cat payments.txt": paid,
        "holdfast show pay-1": lambda: "completed" in terminals.output("holdfast show pay-1"),
    }
    # On a machine of any speed, the bank has not answered yet when the worker is killed.
    edits = {"time.sleep(20)": "time.sleep(600)"}
    carry_out(terminals, "tutorial/approvals-and-recovery.md", waits, edits=edits)
    assert "Request 1 of pay-1: may this run?" in terminals.printed
    assert "the next worker will process it" in terminals.printed
    # On a slow machine, Temporal misses the heartbeats before the next worker has found the death.
    ended = r"found done already, after 1 failed attempt \(no_response: the worker died( or hung)?\): 12500 cents for"
    assert re.search(ended, terminals.printed)
    assert len((terminals.folder / "payments.txt").read_text().splitlines()) == 1
    assert re.search(r"^proven +pay-1", terminals.printed, re.MULTILINE)


@pytest.mark.slow
def test_a_loop(terminals: Terminals) -> None:
    """Each task is done once, and the reader's addition is a commit of its own."""
    carry_out(terminals, "tutorial/loop.md", {})
    repository = terminals.folder / "words"
    assert {path.stem for path in repository.glob("*.md")} == {"TASKS", "ledger", "quorum", "takeover"}
    assert (repository / "TASKS.md").read_text().count("- [x]") == 3
    authors = [line.partition(": ")[0] for line in terminals.output("git -C words log --format='%an: %s'").splitlines()]
    assert authors[0] == "writer (Holdfast)"
    assert authors[1] != authors[0]
