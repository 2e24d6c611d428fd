"""The README's own agent, from an empty folder to a verified log, by the command `holdfast` on the real servers."""

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.integration.processes import reserve_ports
from tests.package.installation import ROOT, Installation

_T = TypeVar("_T")
SECONDS = 60.0
SECTION = re.search(r"^## Your own agent\n(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
assert SECTION
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION[1], re.DOTALL | re.MULTILINE)
FILES = {text.split()[1]: text for kind, text in BLOCKS if kind == "python"}
"""The first line of each is a comment: its path."""
COMMANDS = [shlex.split(line) for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.fixture(params=["developed", "clean"])
def installation(request: pytest.FixtureRequest) -> Installation:
    """The wheel beside the packages of these tests, and beside those of a user."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Installation)
    return found


def until(condition: Callable[[], _T]) -> _T:
    """Wait for a condition, and return its value."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
    return found


@contextmanager
def worker(installation: Installation, *words: str, folder: Path) -> Iterator[str]:
    """Run `holdfast worker …` during the block, on ports of its own; yield what it printed until it was ready."""
    reserve_ports(folder / ".holdfast")
    log = folder / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=installation.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + SECONDS
        while "\nReady" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0, log.read_text()


def test_the_readmes_own_agent_runs_from_an_empty_folder(installation: Installation, tmp_path: Path) -> None:
    """Its files and commands, as they are printed: the worker, a start, an approval, and a log that is intact."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    serve, *commands = COMMANDS
    assert [words[:2] for words in commands] == [["holdfast", verb] for verb in ("start", "approve", "verify")]
    with worker(installation, "env", *serve, folder=tmp_path) as printed:
        assert 'Ready.     holdfast start "…"' in printed
        start, approve, verify = commands
        started = installation.run(*start, folder=tmp_path)
        assert (started.returncode, "holdfast watch dunning-1" in started.stdout) == (0, True), started
        asked = until(lambda: installation.holdfast("pending", "dunning-1", "--json", folder=tmp_path).stdout)
        assert "send_reminder" in asked
        approved = installation.run(*approve, folder=tmp_path)
        assert approved.returncode == 0, approved
        until(lambda: "Reminded." in installation.holdfast("show", "dunning-1", folder=tmp_path).stdout)
        verified = installation.run(*verify, folder=tmp_path)
        assert (verified.returncode, verified.stderr) == (0, ""), verified
    assert (tmp_path / ".holdfast").stat().st_mode & 0o067 == 0


def test_the_example_is_there_without_a_catalog(developed: Installation, tmp_path: Path) -> None:
    """`holdfast worker --dev` in an empty folder offers the release agent, with a scripted LLM."""
    with worker(developed, developed.command, "worker", "--dev", folder=tmp_path) as printed:
        assert "agents: release" in printed
        doctor = developed.holdfast("doctor", folder=tmp_path)
        assert "missing" not in doctor.stdout, doctor.stdout


def test_no_other_package_loses_its_name(clean: Installation, tmp_path: Path) -> None:
    """Beside `llama-index-workflows`, which has a top-level `workflows`, each is imported by its own name."""
    code = "import workflows, holdfast.workflows, holdfast.testing; print(workflows.Workflow.__module__)"
    ran = clean.run(clean.python, "-c", code, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "workflows.workflow\n"), ran.stderr
    for name in ("activities", "examples", "worker", "starter", "gateway"):
        assert clean.run(clean.python, "-c", f"import {name}", folder=tmp_path).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["release", "loop"])
def test_the_demos_run_where_holdfast_is_installed(clean: Installation, tmp_path: Path, demo: str) -> None:
    """Both demos end well, from an empty folder."""
    ran = subprocess.run(
        [clean.python, "-m", f"holdfast.examples.{demo}.demo"],
        cwd=tmp_path,
        env=clean.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "starter.py" not in ran.stdout
