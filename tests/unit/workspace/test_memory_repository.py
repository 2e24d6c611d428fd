"""Each action makes exactly one commit, despite concurrent people and workers and a kill at any moment."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.memory.progress import parse_entries
from holdfast.core.memory.tasks import parse_tasks
from holdfast.workspace.git import locks
from holdfast.workspace.git.git import GitFailed
from holdfast.workspace.git.locks import RepositoryBusy
from holdfast.workspace.git.repository import Repository, RepositoryRefused
from holdfast.workspace.memory.files import PROGRESS, TASKS

ROOT = Path(__file__).parents[3]
PERSON = ["-c", "user.name=Maris", "-c", "user.email=maris@example.invalid", "-c", "init.defaultBranch=main"]


def git(folder: Path, *arguments: str, fails: bool = False) -> str:
    """Run git as a person would."""
    done = subprocess.run(["git", *PERSON, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert fails == bool(done.returncode), done.stderr
    return done.stdout.strip()


def files_of(folder: Path, commit: str = "HEAD") -> list[str]:
    """Return the files of a commit."""
    return git(folder, "ls-tree", "-r", "--name-only", commit).split()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one commit by a person."""
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "a.txt").write_text("1\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


def diverge(root: Path) -> None:
    """Make a branch `other` whose change of a.txt conflicts with that of `main`."""
    git(root, "switch", "--quiet", "-c", "other")
    (root / "a.txt").write_text("2\n")
    git(root, "commit", "--quiet", "-am", "Two")
    git(root, "switch", "--quiet", "main")
    (root / "a.txt").write_text("3\n")
    git(root, "commit", "--quiet", "-am", "Three")


def test_a_workspace_becomes_a_repository_with_its_first_commit(tmp_path: Path) -> None:
    """It has a branch main, the agent as author, and trailers that name the action; state and log show it."""
    workspace = tmp_path / "new"
    repository = Repository(workspace, author="Coder")
    assert repository.state().head == ""
    assert (repository.commits(5), repository.find("k")) == ([], None)

    made = repository.commit_once(
        "k",
        "Begin",
        body="Two\nlines",
        trailers={"Holdfast-Thread": "t"},
        change=lambda: (workspace / "ä b.txt").touch(),
    )

    assert (made.made, made.paths, made.count) == (True, ("ä b.txt",), 1)
    state = repository.state()
    assert (state.head, state.branch, state.dirty, state.problem) == (made.hash, "main", (), "")
    (commit,) = repository.commits(5)
    assert (commit.author, commit.subject) == ("Coder (Holdfast)", "Begin")
    assert commit.trailers == {"Holdfast-Key": "k", "Holdfast-Thread": "t"}
    assert git(workspace, "log", "--format=%B").startswith("Begin\n\nTwo\nlines\n\nHoldfast-Key: k")
    assert git(workspace, "log", "--format=%ce") == "holdfast@localhost"


def test_an_empty_workspace_has_nothing_to_commit(tmp_path: Path) -> None:
    """Its new repository is valid, also for people, and accepts the first file."""
    repository = Repository(tmp_path)
    assert (repository.commit_manual_changes("k").made, repository.state().problem) == (False, "")
    assert git(tmp_path, "status", "--porcelain") == ""
    (tmp_path / "a").touch()
    assert repository.commit_manual_changes("k").paths == ("a",)


def test_an_action_happens_once(root: Path) -> None:
    """If its key is committed already, the change does not run again; another key is another action."""
    repository = Repository(root)
    first = repository.commit_once("k.1", "One", change=lambda: (root / "b").touch())
    again = repository.commit_once("k.1", "One", change=lambda: pytest.fail("it ran again"))
    assert (first.hash, first.paths, False) == (again.hash, again.paths, again.made)
    assert repository.find("kx1") is None
    assert repository.find("k.1") is not None

    nothing = repository.commit_once("k.2", "Two")
    assert (nothing.made, nothing.hash) == (False, first.hash)
    assert repository.commit_once("k.2", "Two", allow_empty=True).made
    with pytest.raises(ValueError, match="cannot be a key"):
        repository.commit_once("k\nHoldfast-Key: other", "Three")


def test_a_change_that_fails_commits_nothing(root: Path) -> None:
    """The exception of the change is raised, and the next attempt commits the changes of both attempts."""
    repository = Repository(root)

    def broken() -> None:
        (root / "b").write_text("half")
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        repository.commit_once("k", "One", change=broken)
    assert repository.find("k") is None
    assert repository.commit_once("k", "One", change=lambda: (root / "c").touch()).paths == ("b", "c")


def test_manual_changes_are_committed_separately(root: Path) -> None:
    """Edits by hand, staged or not, are committed first, once, with the files' names."""
    (root / "a.txt").write_text("by hand")
    (root / "b.txt").touch()
    git(root, "add", "b.txt")
    (root / "c d.txt").touch()
    (root / "e.txt").touch()
    repository = Repository(root)
    assert repository.state().dirty == ("a.txt", "b.txt", "c d.txt", "e.txt")
    commit = repository.commit_manual_changes("iteration-1")
    assert commit.subject == "Commit changes made by hand: a.txt, b.txt, c d.txt and 1 more"
    (root / "a.txt").write_text("the agent's")
    assert repository.commit_manual_changes("iteration-1").hash == commit.hash
    assert repository.state().dirty == ("a.txt",)
    assert git(root, "log", "--format=%an").split("\n") == ["Agent (Holdfast)", "Maris"]


def test_ignored_and_temporary_files_are_not_committed(root: Path) -> None:
    """Files named in .gitignore and temporary files being written are left out."""
    (root / ".gitignore").write_text("*.log\n")
    (root / "x.log").touch()
    (root / ".holdfast-0123.tmp").touch()
    (root / "sub").mkdir()
    (root / "sub" / ".holdfast-4567.tmp").touch()
    assert Repository(root).state().dirty == (".gitignore",)
    assert Repository(root).commit_manual_changes("k").paths == (".gitignore",)


def test_nested_repositories_are_not_committed(root: Path) -> None:
    """With or without commits, they are left out and reported; the files beside them are committed."""
    for name in ("empty", "full *"):
        (root / name).mkdir()
        git(root / name, "init", "--quiet")
    (root / "full *" / "x").touch()
    git(root / "full *", "add", ".")
    git(root / "full *", "commit", "--quiet", "-m", "Inner")
    (root / "beside").touch()
    commit = Repository(root).commit_once("k", "One")
    assert commit.left_out == ("empty/", "full */")
    assert files_of(root) == ["a.txt", "beside"]
    assert Repository(root).state().dirty == ()


def test_a_workspace_inside_a_repository_uses_it(root: Path) -> None:
    """Only files in the workspace are seen and committed; files that a person staged elsewhere stay staged."""
    (root / "a.txt").write_text("by hand")
    git(root, "add", "a.txt")
    workspace = root / "ws"
    workspace.mkdir()
    (workspace / "b.txt").touch()
    repository = Repository(workspace)
    assert repository.state().dirty == ("b.txt",)
    assert repository.commit_once("k", "One").paths == ("b.txt",)
    assert files_of(root) == ["a.txt", "ws/b.txt"]
    assert git(root, "diff", "--cached", "--name-only") == "a.txt"
    (workspace / "b.txt").unlink()
    assert repository.commit_once("k2", "Two").paths == ("b.txt",)
    workspace.mkdir(exist_ok=True)
    assert repository.commit_once("k3", "Three", allow_empty=True).paths == ()
    assert git(root, "diff", "--cached", "--name-only") == "a.txt"
    assert not (workspace / ".git").exists()


def test_a_linked_work_tree_is_a_repository_too(root: Path) -> None:
    """A work tree commits to its own branch and has its own state."""
    linked = root.parent / "linked"
    git(root, "worktree", "add", "--quiet", "-b", "side", str(linked))
    (linked / "b.txt").touch()
    assert Repository(linked).commit_once("k", "One").paths == ("b.txt",)
    assert Repository(linked).state().branch == "side"
    assert files_of(root) == ["a.txt"]
    git(root, "merge", "--quiet", "--no-commit", "--no-ff", "side")
    assert "a merge is under way" in Repository(root).state().problem
    assert Repository(linked).state().problem == ""


def test_a_workspace_that_a_repository_ignores_has_its_own(root: Path) -> None:
    """If an outer repository ignores the workspace, the agent does not commit to it."""
    (root / ".gitignore").write_text("runs/\n")
    workspace = root / "runs" / "one"
    workspace.mkdir(parents=True)
    (workspace / "b.txt").touch()
    head = git(root, "rev-parse", "HEAD")
    assert Repository(workspace).commit_once("k", "One").paths == ("b.txt",)
    assert (workspace / ".git").is_dir()
    assert head == git(root, "rev-parse", "HEAD")


def test_neither_hooks_nor_the_persons_name_are_used(root: Path) -> None:
    """The agent's commit runs no hook of the repository, is not signed, and has the agent as author."""
    for name in ("pre-commit", "commit-msg", "post-commit"):
        hook = root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        hook.chmod(0o755)
    for setting in ("user.name=Maris", "commit.gpgSign=true", "core.fsmonitor=touch ran", "commit.cleanup=strip"):
        git(root, "config", *setting.split("=", 1))
    (root / "b").touch()
    Repository(root).commit_once("k", "# One")
    assert files_of(root) == ["a.txt", "b"]
    assert git(root, "log", "-1", "--format=%an|%s") == "Agent (Holdfast)|# One"


STATES = {
    "a merge is under way": [["merge", "other"]],
    "a rebase is under way": [["rebase", "other"]],
    "a cherry-pick is under way": [["cherry-pick", "other"]],
    "a revert is under way": [["revert", "HEAD~1"]],
}


@pytest.mark.parametrize("name", ["evil", "e=v i.l"])
def test_no_program_of_the_repositorys_configuration_runs(name: str, root: Path) -> None:
    """A filter that an agent put into the configuration does not run; its files are not committed."""
    ran = root.parent / "ran"
    for key in ("clean", "smudge", "process"):
        git(root, "config", f"filter.{name}.{key}", f"touch '{ran}'; cat")
    git(root, "config", f"filter.{name}.required", "true")
    git(root, "config", "include.path", "more")
    (root / ".git" / "more").write_text(f"[filter \"again\"]\n\tclean = touch '{ran}'\n")
    (root / ".gitattributes").write_text("*.txt filter=evil\n*.md filter=again\n")
    (root / "b.txt").write_text("as it is\n")
    (root / "c.md").write_text("as it is\n")
    assert Repository(root).state().dirty_count == 3
    commit = Repository(root).commit_once("k", "One")
    assert commit.filtered == ("b.txt (filter evil)", "c.md (filter again)")
    assert commit.not_run == (f"filter {name}", "include.path")
    assert not ran.exists()
    assert files_of(root) == [".gitattributes", "a.txt"]


@pytest.mark.parametrize("words", [*STATES, "a bisect is under way", "HEAD is detached", "conflicts"])
def test_an_unfinished_git_operation_is_left_alone(words: str, root: Path) -> None:
    """During a person's merge, rebase or similar, neither the files nor the index nor HEAD change."""
    diverge(root)
    if words in STATES:
        (arguments,) = STATES[words]
        if arguments[0] == "revert":
            (root / "a.txt").write_text("4\n")
            git(root, "commit", "--quiet", "-am", "Four")
        git(root, *arguments, fails=True)
    elif words == "conflicts":
        (root / "a.txt").write_text("stashed\n")
        git(root, "stash", "--quiet")
        (root / "a.txt").write_text("4\n")
        git(root, "commit", "--quiet", "-am", "Four")
        git(root, "stash", "pop", fails=True)
    elif words == "HEAD is detached":
        git(root, "switch", "--quiet", "--detach")
    else:
        git(root, "bisect", "start")
    before = (git(root, "status", "--porcelain"), (root / "a.txt").read_bytes(), git(root, "rev-parse", "HEAD"))

    assert words in Repository(root).state().problem
    with pytest.raises(RepositoryRefused, match=words):
        Repository(root).commit_once("k", "One", change=lambda: pytest.fail("it ran"))
    assert before == (git(root, "status", "--porcelain"), (root / "a.txt").read_bytes(), git(root, "rev-parse", "HEAD"))


def test_an_unusable_repository_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare or broken repository, a broken index or a missing git gives a message and changes nothing."""
    bare = root.parent / "bare"
    bare.mkdir()
    git(bare, "init", "--quiet", "--bare")
    broken = root / "broken"
    (broken / ".git").mkdir(parents=True)
    for folder, words in ((bare, "is a bare repository"), (broken, "cannot be read; repair it first")):
        assert words in Repository(folder).state().problem
        with pytest.raises(GitFailed, match=words):
            Repository(folder).commit_once("k", "One")
    assert list((broken / ".git").iterdir()) == []

    monkeypatch.setenv("PATH", str(bare))
    assert "git cannot be started" in Repository(root).state().problem
    monkeypatch.undo()
    (root / ".git" / "index").write_bytes(b"no index")
    assert "git ls-files failed" in Repository(root).state().problem
    with pytest.raises(GitFailed):
        Repository(root).commit_once("k", "One", change=lambda: pytest.fail("it ran"))


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_an_abandoned_lock_is_removed(name: str, root: Path) -> None:
    """If no git is running and the lock file is old, the commit proceeds."""
    lock = root / ".git" / name
    lock.touch()
    os.utime(lock, (time.time() - 60, time.time() - 60))
    (root / "b").touch()
    assert Repository(root).commit_once("k", "One").made
    assert not lock.exists()


def test_a_lock_in_use_is_respected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While git runs in the repository, its lock stays and the error names the process; later the commit proceeds."""
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.2)
    lock = root / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (time.time() - 60, time.time() - 60))
    (root / "b").touch()
    with subprocess.Popen(["git", "cat-file", "--batch"], cwd=root, stdin=subprocess.PIPE) as running_git:
        with pytest.raises(RepositoryBusy, match=rf"index.lock \(process {running_git.pid}\)"):
            Repository(root).commit_once("k", "One")
        assert lock.exists()
        assert running_git.stdin is not None
        running_git.stdin.close()
        running_git.wait()
    assert Repository(root).commit_once("k", "One").made


def test_a_commit_waits_for_another_worker(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holdfast's own lock has one holder at a time; after a time limit, the others get an error."""
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    with (
        locks.exclusive(root / ".git"),
        pytest.raises(RepositoryBusy, match="another run has been committing in workspace"),
    ):
        Repository(root).commit_once("k", "One")


PROGRAM = """
import os, random, signal, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory.tools import complete_task
from holdfast.core.tools.decorator import ToolContext

workspace, mode = Path(sys.argv[1]), sys.argv[2]

def work(name, attempt):
    for n in range(4):
        at = datetime(2026, 1, 1, 10, n, tzinfo=UTC)
        context = ToolContext(thread=name, workspace=workspace, key=f"{name}-{n}", attempt=attempt, at=at)
        complete_task(f"Test {name}", "done", context=context)

def child(name, attempt):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(name, attempt)
            code = 0
        finally:
            os._exit(code)
    return pid

if mode == "slow":
    big = random.Random(3).randbytes(20_000_000)
    Repository(workspace).commit_once("slow", "Slow", change=lambda: (workspace / "big").write_bytes(big))
elif mode == "kill":
    chance = random.Random(3)
    for attempt in range(1, 11):
        pid = child("a", attempt)
        time.sleep(chance.uniform(0.01, 0.3))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    work("a", 11)
else:
    for pid in [child("a", 1), child("b", 1)]:
        assert os.waitpid(pid, 0)[1] == 0
"""
"""A program that runs workers: one killed at random moments, or two at once."""


def run(workspace: Path, mode: str) -> None:
    """Run the program above to its end."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, workspace, mode], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.extended
@pytest.mark.parametrize(("mode", "names"), [pytest.param("kill", ["a"], marks=pytest.mark.slow), ("both", ["a", "b"])])
def test_kills_and_concurrent_workers_lose_and_repeat_nothing(mode: str, names: list[str], root: Path) -> None:
    """After ten random kills, or with two processes, each task is done, logged and committed exactly once."""
    (root / TASKS).write_text("".join(f"- [ ] {n}\n  - [ ] Test {name}\n" for name in names for n in range(4)))
    Repository(root).commit_manual_changes("plan")

    run(root, mode)

    keys = [commit.key for commit in Repository(root).commits(100)]
    expected = [f"{name}-{n}" for name in names for n in range(4)]
    assert sorted([*expected, "plan", ""]) == sorted(keys)
    tasks = parse_tasks((root / TASKS).read_text())
    assert {"done"} == {task.status for task in tasks if task.title.startswith("Test")}
    assert len(expected) == len(parse_entries((root / PROGRESS).read_text()))
    assert Repository(root).state().dirty == ()
    git(root, "fsck", "--strict")


def test_an_interrupted_commit_is_made_once(root: Path) -> None:
    """A worker killed during a commit leaves only a lock; the next attempt makes the whole commit."""
    lock = root / ".git" / "index.lock"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, root, "slow"], cwd=ROOT) as worker:
        while not lock.exists():
            assert worker.poll() is None
            time.sleep(0.01)
        worker.send_signal(signal.SIGKILL)
    assert lock.exists()

    assert Repository(root).commit_once("slow", "Slow").paths == ("big",)
    assert [commit.key for commit in Repository(root).commits(5)] == ["slow", ""]
    assert not lock.exists()
    git(root, "fsck", "--strict")


@pytest.mark.slow
def test_a_large_repository_takes_seconds(root: Path) -> None:
    """In a repository of 100,000 files, committing one more takes seconds."""
    for folder in range(100):
        (root / f"d{folder}").mkdir()
        for number in range(1_000):
            (root / f"d{folder}" / f"f{number}").write_bytes(b"")
    repository = Repository(root)
    assert repository.commit_manual_changes("all").count == 100_000
    (root / "one").touch()
    began = time.process_time()
    assert repository.commit_once("k", "One").count == 1
    assert time.process_time() - began < 40
