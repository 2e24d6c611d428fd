"""`holdfast policy adopt`: which policy and which runs it asks for, what it prints, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast import starter
from holdfast.cli.session import Session
from holdfast.client import adopting
from holdfast.client.adopting import Adoption
from holdfast.client.sending import SENT, UpdateResult
from holdfast.config.policy_file import load_policy
from holdfast.core.authority.signatures import encode_key
from holdfast.errors import NoWorker, ThreadNotFound

DIGEST = "0" * 64


class Asked:
    """What a command asked of the runs, and how they answer."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, ...]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.answer: UpdateResult | Exception = UpdateResult("accepted", "the run adopts the policy")
        self.adoption = Adoption()

    async def connect(self, *threads: str) -> None:
        """Take the place of `Session.connect`."""
        self.connected.append(threads)

    async def one(self, _: object, thread: str, policy: str, *, by: str, reason: str, private: str | None) -> Any:
        """Take the place of `adopt_policy`."""
        self.calls.append((thread, policy, by, reason, private))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def waiting(self, _: object, policy: str, *, by: str, reason: str, private: str | None) -> Adoption:
        """Take the place of `adopt_where_waiting`."""
        self.calls.append((policy, by, reason, private))
        return self.adoption


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """Return the runs, in a folder with a policy and a key, and no server."""
    asked = Asked()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "connect", asked.connect)
    monkeypatch.setattr(adopting, "adopt_policy", asked.one)
    monkeypatch.setattr(adopting, "adopt_where_waiting", asked.waiting)
    (tmp_path / "policy.yaml").write_text("rules:\n  - {tool: pay, verdict: ask}\n")
    (tmp_path / "bad.yaml").write_text("rules:\n  - {tool: pay, verdict: perhaps}\n")
    (tmp_path / "alice.key").write_text(encode_key(b"a" * 32))
    (tmp_path / "alice.key").chmod(0o600)
    return asked


def adopt(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(starter.app, ["policy", "adopt", *words])


def test_a_file_is_named_by_its_digest(runs: Asked) -> None:
    """The run gets the digest of the file, the person, the reason and the key; a digest is passed on as it is."""
    words = ("rel-1", "--by", "alice", "--reason", "Sundays", "--key", "alice.key", "--json")
    for policy, digest in (("policy.yaml", load_policy(Path("policy.yaml")).hash), (DIGEST, DIGEST)):
        ran = adopt(policy, *words)
        assert (ran.exit_code, json.loads(ran.stdout)) == (0, {"outcome": "accepted"}), ran.output
        assert runs.calls.pop() == ("rel-1", digest, "alice", "Sundays", encode_key(b"a" * 32))
    assert runs.connected == [("rel-1",), ("rel-1",)]


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (UpdateResult("duplicate", "the run has the policy"), 5, "the run has the policy"),
        (UpdateResult(SENT, "no worker answers"), 0, "no worker answers"),
        (UpdateResult("not_entitled", "the policy names no approver 'eve'"), 5, "names no approver 'eve'"),
        (ThreadNotFound("there is no thread 'rel-1'"), 3, "there is no thread 'rel-1'"),
        (NoWorker("no worker has loaded it"), 4, "no worker has loaded it"),
    ],
)
def test_the_exit_code_says_whether_the_run_takes_it(
    runs: Asked, answer: UpdateResult | Exception, code: int, says: str
) -> None:
    """What a run or the server rejects is no success, and the reason is shown."""
    runs.answer = answer
    ran = adopt(DIGEST, "rel-1")
    assert (ran.exit_code, says in " ".join(ran.output.split())) == (code, True), ran.output


def test_all_that_wait_are_listed_by_what_became_of_them(runs: Asked) -> None:
    """The command fails if a run refused, failed, or was left alone, and names it with the reason. A run that has the
    policy already, because the command is repeated, is none of them.
    """
    runs.adoption.answers = {"b": UpdateResult("accepted"), "a": UpdateResult("duplicate")}
    ran = adopt(DIGEST, "--waiting", "--json")
    assert (ran.exit_code, runs.connected) == (0, [()])
    assert json.loads(ran.stdout) == {"policy": DIGEST, "adopting": ["a", "b"], "refused": {}, "left": []}
    runs.adoption.answers["c"] = UpdateResult("unsigned", "sign it")
    runs.adoption.failed["d"] = NoWorker("nobody answers")
    runs.adoption.left = ("e",)
    ran = adopt(DIGEST, "--waiting", "--json")
    expected = {"adopting": ["a", "b"], "refused": {"c": "sign it", "d": "nobody answers"}, "left": ["e"]}
    assert (ran.exit_code, json.loads(ran.stdout)) == (1, {"policy": DIGEST, **expected})
    screen = adopt(DIGEST, "--waiting").output
    assert all(
        line in screen for line in ("2 runs that waited adopt it", "c: sign it", "d: nobody", "1 run left alone")
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((DIGEST,), "name a thread, or give --waiting"),
        ((DIGEST, "rel-1", "--waiting"), "name a thread, or give --waiting"),
        (("bad.yaml", "rel-1"), "verdict"),
        (("missing.yaml", "rel-1"), "missing.yaml"),
        ((DIGEST[1:], "rel-1"), DIGEST[1:]),
        ((DIGEST, "rel-1", "--key", "no.key"), "no.key"),
    ],
)
def test_what_cannot_be_asked_for_reaches_no_run(runs: Asked, words: tuple[str, ...], says: str) -> None:
    """A wrong policy, key or choice of runs is a wrong usage: nothing is sent."""
    ran = adopt(*words)
    assert (ran.exit_code, runs.calls, runs.connected) == (2, [], []), ran.output
    assert says in ran.output.replace("\n", "")
