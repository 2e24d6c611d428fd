"""A newcomer types the commands of the first tutorial, in an empty folder, with the wheel installed."""

import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, snippets
from tests.package.installation import SECONDS, Installation

PAGE = snippets(DOCS / "tutorial/first-agent.md")


@pytest.fixture(params=[pytest.param("developed", marks=pytest.mark.slow), "clean"])
def installation(request: pytest.FixtureRequest) -> Installation:
    """Return the wheel beside the packages of these tests, and beside those of a user."""
    installed = request.getfixturevalue(request.param)
    assert isinstance(installed, Installation)
    return installed


@dataclass
class Newcomer:
    """A person who types the page's commands, and waits at the points where a person would look first."""

    installation: Installation
    folder: Path
    workers: ExitStack = field(default_factory=ExitStack)
    typed: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    """The output of each command."""

    def type(self, line: str) -> None:
        """Carry out a line of the page."""
        arguments = shlex.split(line, comments=True)
        self.typed.append(line)
        match arguments:
            case ["pip", "install", _]:
                return  # the fixture has done it
            case ["cd", folder]:
                self.folder /= folder
            case ["holdfast", "worker", "--dev"]:
                self.workers.close()
                self.workers.enter_context(self.installation.worker(*arguments[2:], folder=self.folder))
            case ["python", file]:
                self.workers.close()  # as the page says
                ran = self.installation.run(self.installation.python, file, folder=self.folder, stdin="y\n")
                assert ran.returncode == 0, ran
                self.said[line] = ran.stdout
            case ["holdfast", verb, thread, *_] if verb in ("approve", "show"):
                state = "waiting_approval" if verb == "approve" else "completed"
                self.wait(lambda: f'"status": "{state}"' in self.run("show", thread, "--json"))
                self.said[line] = self.run(*arguments[1:])
            case ["holdfast", *rest]:
                self.said[line] = self.run(*rest)
            case _:
                raise AssertionError(f"nobody can type {line!r}")

    def run(self, *words: str) -> str:
        """Run `holdfast` to its end, without a fault; return its output."""
        ran = self.installation.holdfast(*words, folder=self.folder)
        assert ran.returncode == 0, ran
        return ran.stdout

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline


@pytest.mark.timeout(1_800)  # it types thirty commands
def test_a_newcomer_has_an_agent_of_their_own(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command and file of the page works as printed: the agent asks, is approved, answers, and is verified."""
    began = time.monotonic()
    newcomer = Newcomer(installation, tmp_path)
    with newcomer.workers:
        for snippet in PAGE:
            if snippet.file:
                (newcomer.folder / snippet.file).write_text(snippet.code)
            elif snippet.language == "sh":
                for line in snippet.code.splitlines():
                    newcomer.type(line)
    seconds, said = time.monotonic() - began, newcomer.said
    assert "send_reminder" in said["holdfast pending"]
    assert "I have reminded customer 4711" in said["holdfast show dunning-1"]
    assert "Order 77 is refunded." in said["python agents.py"]
    assert "Order 77 is refunded." in said["holdfast show order-77"]
    assert all(said[f"holdfast verify {thread}"].startswith("proven") for thread in ("dunning-1", "order-77"))
    assert "offers support from agents:catalog" in said["holdfast doctor"]
    assert "missing" not in said["holdfast doctor"]
    options = [word for line in newcomer.typed for word in shlex.split(line) if word.startswith("--")]
    assert set(options) <= {"--dev", "--thread", "--reason"}
    with capsys.disabled():
        print(
            f"\nnewcomer: {len(newcomer.typed)} commands, {seconds:.1f} s, from an empty folder to two verified agents"
        )


def test_a_client_in_another_folder_names_the_places_it_searched(developed: Installation, tmp_path: Path) -> None:
    """Without a server, the error names the settings, the state folder and the address; the client needs no project."""
    home = str(tmp_path / "home")
    ran = developed.holdfast("list", folder=tmp_path, TEMPORAL_ADDRESS="127.0.0.1:1", HOLDFAST_HOME=home)
    assert (ran.returncode, ran.stdout) == (4, "")
    for said in (
        "127.0.0.1:1",
        "from TEMPORAL_ADDRESS",
        f"{tmp_path / 'holdfast.toml'} is not there",
        f"{home} has none",
    ):
        assert said in ran.stderr


def test_completion_is_written_only_when_asked_for(developed: Installation, tmp_path: Path) -> None:
    """`--install-completion` writes into the home folder, `--show-completion` does not, and verbs complete."""
    home = tmp_path / "home"
    home.mkdir()
    values = {"HOME": str(home), "SHELL": "/bin/bash"}
    assert "--install-completion" in developed.holdfast("--help", folder=tmp_path, **values).stdout
    completing = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": "holdfast appr", "COMP_CWORD": "1"}
    assert developed.holdfast(folder=tmp_path, **values, **completing).stdout.split() == ["approve", "approvers"]
    assert list(home.iterdir()) == []
    shell = ["bash", "--norc", "-c", f"{developed.command} --install-completion; exit $?"]
    installed = developed.run(*shell, folder=tmp_path, **values)
    assert installed.returncode == 0, installed
    assert (home / ".bash_completions/holdfast.sh").exists()
