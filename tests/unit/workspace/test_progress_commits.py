"""Notes of a run become commits: of the progress file alone, or of all work; never of what a person has in hand."""

import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Memory
from holdfast.core.memory.progress import parse_current
from holdfast.core.tools.decorator import ToolContext
from holdfast.core.tools.progress_file import Commits, ProgressFile
from holdfast.core.trust import Origin
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory.progress_tool import update_progress
from holdfast.workspace.memory.tools import complete_task, note_progress

AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
PERSON = ["-c", "user.name=Maris", "-c", "user.email=maris@example.invalid", "-c", "init.defaultBranch=main"]


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person would."""
    return subprocess.run(["git", *PERSON, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one commit by a person, one file staged and one changed by hand."""
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "a.txt").write_text("1\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "Begin")
    (root / "staged.txt").write_text("by hand\n")
    git(root, "add", "staged.txt")
    (root / "a.txt").write_text("2\n")
    return root


def context(workspace: Path, commits: Commits, *, key: str = "k1", name: str = "progress.txt") -> ToolContext:
    """Return the context of a note."""
    progress = ProgressFile(name=name, commits=commits)
    origin = Origin(agent="Coder")
    return ToolContext(thread="t", workspace=workspace, key=key, attempt=1, at=AT, origin=origin, progress=progress)


def test_a_note_commits_its_file_alone_and_once(root: Path) -> None:
    """What a person has staged or changed stays as it is, and a second attempt makes no second commit."""
    before = git(root, "status", "--porcelain")
    call = context(root, "progress")
    made = update_progress(last_step="1, in progress", calls=("pay (call 3), ok: {} → paid",), call=call)
    assert update_progress(last_step="1, in progress", calls=("pay (call 3), ok: {} → paid",), call=call) == made
    assert git(root, "status", "--porcelain") == before
    newest = Repository(root).commits(5)
    assert [commit.subject for commit in newest] == ["Progress: pay (call 3)", "Begin"]
    assert newest[0].author == "Coder (Holdfast)"
    assert newest[0].trailers == {"Holdfast-Key": "k1", "Holdfast-Thread": "t"}
    assert git(root, "show", "--name-only", "--format=").split() == ["progress.txt"]
    assert newest[0].hash[:7] in made


def test_a_run_that_commits_its_work_keeps_peoples_changes_apart(root: Path) -> None:
    """The first note commits what people changed before the run; each later one what the agent did."""
    update_progress(goal="g", last_step="0, in progress", call=context(root, "work"))
    (root / "made.txt").touch()
    update_progress(last_step="1, in progress", calls=("write (call 2), ok: {}",), call=context(root, "work", key="k2"))
    subjects = [commit.subject for commit in Repository(root).commits(5)]
    assert subjects[0] == "Progress: write (call 2)"
    assert subjects[1:3] == ["Progress: 0, in progress", "Commit changes made by hand: a.txt, staged.txt"]
    assert git(root, "show", "--name-only", "--format=").split() == ["made.txt", "progress.txt"]
    assert git(root, "status", "--porcelain") == ""


def test_a_workspace_without_a_repository_stays_without_one(tmp_path: Path) -> None:
    """The file is written all the same; so it is while a person merges, and the result says that it has no commit."""
    assert update_progress(status="half", call=context(tmp_path, "work")) == "Updated progress.txt"
    assert not (tmp_path / ".git").exists()


def test_a_repository_that_cannot_be_committed_to_does_not_stop_a_note(root: Path) -> None:
    """The note is in the file, and the result says why it is not committed."""
    git(root, "switch", "--quiet", "--detach")
    said = update_progress(status="half", call=context(root, "progress"))
    assert "it is not committed: " in said
    assert parse_current((root / "progress.txt").read_text()).status == "half"


def test_an_ignored_file_and_one_behind_a_filter_are_not_committed(root: Path) -> None:
    """What the repository excludes stays out of its history."""
    (root / ".gitignore").write_text("progress.txt\n")
    update_progress(status="half", call=context(root, "progress"))
    (root / ".gitattributes").write_text("P.md filter=lfs\n")
    update_progress(status="half", call=context(root, "progress", key="k2", name="P.md"))
    assert [commit.subject for commit in Repository(root).commits(5)] == ["Begin"]


def test_all_tools_write_the_agents_file(root: Path) -> None:
    """With another name, the task tools and notes use that file, too, and keep its form."""
    (root / "TASKS.md").write_text("- [ ] First\n- [ ] Second\n")
    (root / "docs").mkdir()
    (root / "docs" / "P.md").write_text("# Progress: Two tasks\n")
    call = context(root, "progress", name="docs/P.md")
    update_progress(completed=("Read the plan",), blocker="no key", call=call)
    complete_task("First", "Wrote x", next_step="Second", context=replace(call, key="k2"))
    note_progress("Second", "began", context=replace(call, key="k3"))
    text = (root / "docs" / "P.md").read_text()
    assert [line for line in text.splitlines() if line[:1].isdigit()] == [
        "1. [x] t: Read the plan (2026-11-21 10:30)",
        "2. [x] First: Wrote x (2026-11-21 10:30)",
        "3. [ ] Second: began (In progress) (2026-11-21 10:30)",
    ]
    assert parse_current(text).blockers == "no key"
    assert not (root / "progress.txt").exists()


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", ".git/config", "a/.git/x", ".agents/STRATEGIES.md", "tasks.md", "a\nb", "a//b", "x" * 201, ""],
)
def test_a_progress_file_is_in_the_workspace_and_nothing_else(name: str) -> None:
    """Neither paths outside nor hidden ones nor other memory files can be the progress file."""
    with pytest.raises(ValueError, match="cannot be the progress file"):
        Memory(progress=True, progress_file=name)
