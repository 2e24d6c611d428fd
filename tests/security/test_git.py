"""The memory tools' git runs no program, writes only in place and reads no foreign files, whatever `.git` contains.

If bubblewrap works, each attack runs twice: with git confined, and without.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.stack_file import Stack
from holdfast.core.tools.decorator import ToolContext
from holdfast.examples.release.git import commit_of
from holdfast.examples.release.git import git as release_git
from holdfast.examples.shared.git import GitFailed as ReleaseGitFailed
from holdfast.workspace.git import git as git_module
from holdfast.workspace.git.git import GitFailed
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory.tools import commit_work
from tests.integration.test_loops import Shell
from tests.support.rig import StartRig, status_of
from tests.workflow.test_agent_loop import catalog, diligent

PERSON = ["-c", "user.name=Maris", "-c", "user.email=maris@example.invalid", "-c", "init.defaultBranch=main"]
AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
SECRET = "somebody else's\n"


CONFINED_TOO = pytest.mark.parametrize(
    "boxed", ["plain", pytest.param("confined", marks=pytest.mark.extended)], indirect=True
)
"""Of attacks that differ by data, the tests that have one each run confined by default."""


@pytest.fixture(params=["plain", "confined"])
def boxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with git in bubblewrap, and without."""
    if request.param == "plain":
        monkeypatch.setattr(git_module, "is_confined", lambda: False)
    elif not git_module.is_confined():
        pytest.skip("bubblewrap does not work here")


@dataclass(frozen=True)
class Ground:
    """A prepared folder, and the files that an attack must not reach."""

    root: Path

    @property
    def ran(self) -> Path:
        """Return the file that a planted program creates."""
        return self.root.parent / "ran"

    @property
    def canary(self) -> Path:
        """Return a file elsewhere to which a planted link points."""
        return self.root.parent / "canary"

    @property
    def victim(self) -> Path:
        """Return another repository."""
        return self.root.parent / "victim"

    @property
    def program(self) -> str:
        """Return a command that leaves a trace."""
        return f"touch '{self.ran}'; cat"

    def git(self, *arguments: str, at: Path | None = None) -> str:
        """Run git as a person would, or an attacker's command."""
        done = subprocess.run(
            ["git", *PERSON, *arguments], cwd=at or self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def script(self, path: Path) -> None:
        """Create a program that leaves a trace."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch '{self.ran}'\n")
        path.chmod(0o755)

    def require_unharmed(self) -> None:
        """Check that nothing ran, nothing was written elsewhere, and no foreign file was committed."""
        assert not self.ran.exists(), "a planted program ran"
        assert self.canary.read_text() == SECRET, "a file elsewhere was written"
        assert self.git("log", "--format=%s", at=self.victim) == "Theirs"
        assert self.git("status", "--porcelain", at=self.victim) == "", "somebody else's repository was changed"
        with suppress(subprocess.CalledProcessError, NotADirectoryError):
            assert "theirs" not in self.git("log", "--name-only", "--format=%an", "--author=Holdfast")


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two repositories of one commit each, which tests copy."""
    made = tmp_path_factory.mktemp("repositories")
    for folder, name in ((made / "workspace", "Ours"), (made / "victim", "Theirs")):
        folder.mkdir()
        git = partial(subprocess.run, cwd=folder, capture_output=True, check=True)
        git(["git", *PERSON, "init", "--quiet"])
        (folder / f"{name.lower()}.txt").write_text(SECRET)
        git(["git", *PERSON, "add", "."])
        git(["git", *PERSON, "commit", "--quiet", "-m", name])
    return made


def prepare(repositories: Path, folder: Path) -> Ground:
    """Copy a repository, and a victim and a canary beside it."""
    shutil.copytree(repositories, folder, dirs_exist_ok=True)
    ground = Ground(folder / "workspace")
    ground.canary.write_text(SECRET)
    return ground


@pytest.fixture
def ground(repositories: Path, tmp_path: Path) -> Iterator[Ground]:
    """Return a repository with one commit and a new file, a canary beside it, and a victim."""
    ground = prepare(repositories, tmp_path)
    (ground.root / "new.txt").write_text("new\n")
    yield ground
    ground.require_unharmed()


Plant = Callable[[Ground], object]


def setting(*settings: str) -> Plant:
    """Set the repository's configuration; `PROGRAM` stands for a command that leaves a trace."""

    def plant(ground: Ground) -> None:
        for each in settings:
            name, _, value = each.partition("=")
            ground.git("config", name, value.replace("PROGRAM", ground.program))

    return plant


def attributes(text: str, *settings: str, info: bool = False) -> Plant:
    """Set attributes and settings."""

    def plant(ground: Ground) -> None:
        with (ground.root / (".git/info/attributes" if info else ".gitattributes")).open("a") as file:
            file.write(text)
        setting(*settings)(ground)

    return plant


def hook(name: str) -> Plant:
    """Plant a hook."""
    return lambda ground: ground.script(ground.root / ".git" / "hooks" / name)


def included(name: str) -> Plant:
    """Plant a filter in a file that the configuration includes."""

    def plant(ground: Ground) -> None:
        (ground.root / ".git" / "more").write_text(f'[filter "x"]\n\tclean = "{ground.program}"\n')
        (ground.root / ".gitattributes").write_text("*.txt filter=x\n")
        ground.git("config", name, "more")

    return plant


def of_work_tree(ground: Ground) -> None:
    """Plant a filter in `config.worktree`."""
    ground.git("config", "extensions.worktreeConfig", "true")
    ground.git("config", "--worktree", "filter.x.clean", ground.program)
    (ground.root / ".gitattributes").write_text("*.txt filter=x\n")


def nested(*, linked: bool) -> Plant:
    """Plant a nested repository with a filter in its own configuration, tracked as a submodule or not."""

    def plant(ground: Ground) -> None:
        inner = ground.root / "inner"
        inner.mkdir()
        ground.git("init", "--quiet", at=inner)
        (inner / "a.txt").write_text("a\n")
        ground.git("add", ".", at=inner)
        ground.git("commit", "--quiet", "-m", "Inner", at=inner)
        if linked:
            ground.git("add", "inner")
            ground.git("commit", "--quiet", "-m", "Link")
        (inner / ".gitattributes").write_text("*.txt filter=x\n")
        (inner / "a.txt").write_text("b\n")
        ground.git("config", "filter.x.clean", ground.program, at=inner)
        ground.git("config", "core.fsmonitor", ground.program, at=inner)

    return plant


def program_of(name: str, *settings: str) -> Plant:
    """Set settings that name a program file; `FILE` stands for it."""

    def plant(ground: Ground) -> None:
        program = ground.root / name
        ground.script(program)
        setting(*(each.replace("FILE", str(program)) for each in settings))(ground)

    return plant


RUN_BY_GIT: dict[str, Plant] = {
    "filter": attributes("*.txt filter=x\n", "filter.x.clean=PROGRAM", "filter.x.required=true"),
    "process filter": attributes("*.txt filter=x\n", "filter.x.process=PROGRAM"),
    "filter by info/attributes": attributes("*.txt filter=x\n", "filter.x.clean=PROGRAM", info=True),
    "pre-commit hook": hook("pre-commit"),
    "post-index-change hook": hook("post-index-change"),
    "reference-transaction hook": hook("reference-transaction"),
    "core.hooksPath": program_of("hooks/pre-commit", "core.hooksPath=hooks"),
    "core.fsmonitor": setting("core.fsmonitor=PROGRAM"),
    "gpg.program": program_of("gpg", "commit.gpgSign=true", "gpg.program=FILE"),
    "include.path": included("include.path"),
    "includeIf": included("includeIf.gitdir:**.path"),
    "config.worktree": of_work_tree,
    "nested submodule": nested(linked=True),
}
"""The attacks that plain git runs in `add` and `commit`."""

NOT_RUN_HERE: dict[str, Plant] = {
    "nested repository": nested(linked=False),
    "core.sshCommand": setting("core.sshCommand=PROGRAM", "remote.origin.url=ssh://localhost/x"),
    "textconv": attributes("*.txt diff=x\n", "diff.x.textconv=PROGRAM", "diff.external=PROGRAM"),
    "merge driver": attributes("*.txt merge=x\n", "merge.x.driver=PROGRAM"),
    "alias": setting("alias.add=!PROGRAM", "alias.commit=!PROGRAM", "alias.log=!PROGRAM"),
    "pager and editor": setting("core.pager=PROGRAM", "core.editor=PROGRAM", "pager.log=PROGRAM"),
    "credentials": setting("credential.helper=!PROGRAM", "core.askPass=PROGRAM"),
    "alternateRefsCommand": setting("core.alternateRefsCommand=PROGRAM"),
    "promisor": setting("remote.origin.promisor=true", "remote.origin.url=ext::sh -c PROGRAM"),
}


def together(plants: Iterable[Plant]) -> Plant:
    """Plant several in one folder."""
    return lambda ground: [plant(ground) for plant in plants]


def extended(names: Iterable[str]) -> list[Any]:
    """Return names that are cases of the extended tests."""
    return [pytest.param(name, marks=pytest.mark.extended) for name in names]


TOGETHER: dict[str, Plant] = {
    "all that is not run here": together(NOT_RUN_HERE.values()),
    "all that git runs": together(
        # Plain git makes a commit in the first one. The setting of a folder of hooks would hide the others.
        [RUN_BY_GIT["nested submodule"]]
        + [plant for name, plant in RUN_BY_GIT.items() if name not in ("nested submodule", "core.hooksPath")]
    ),
}
PLANTS = RUN_BY_GIT | NOT_RUN_HERE | TOGETHER


@pytest.mark.usefixtures("boxed")
@CONFINED_TOO
@pytest.mark.parametrize("name", [*RUN_BY_GIT, "all that is not run here", *extended(NOT_RUN_HERE)])
def test_no_program_that_a_folder_names_is_run(name: str, ground: Ground) -> None:
    """Status and commit run no filter, hook, monitor, signer or other program, and the commit is made."""
    PLANTS[name](ground)
    repository = Repository(ground.root)
    assert repository.state().problem == ""
    assert repository.commit_manual_changes("k").made or name.startswith("filter by info")
    repository.commits(10)
    assert repository.find("k") is not None or name.startswith("filter by info")


@pytest.mark.extended
@pytest.mark.parametrize("name", RUN_BY_GIT)
def test_plain_git_runs_the_planted_programs(name: str, ground: Ground) -> None:
    """Plain git runs each planted program, so the attacks are real."""
    RUN_BY_GIT[name](ground)
    for arguments in (["status"], ["add", "--all"], ["commit", "-m", "x"]):
        subprocess.run(["git", *PERSON, *arguments], cwd=ground.root, capture_output=True, check=False)
    assert ground.ran.exists()
    ground.ran.unlink()


LINKS = [
    *("COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads/main", "logs", "index", "index.lock", "HEAD", "HEAD.lock"),
    *("refs", "refs/heads", "refs/heads/main", "refs/heads/main.lock", "packed-refs", "config", "info"),
    *("info/exclude", "info/attributes", "objects", "objects/pack", "objects/info", "shallow", "holdfast.lock"),
]


@pytest.mark.usefixtures("boxed")
def test_no_link_in_a_git_folder_is_followed(ground: Ground) -> None:
    """A link anywhere that git reads or writes is rejected by name before anything is changed."""
    for name in LINKS:
        path = ground.root / ".git" / name
        kept = ground.root.parent / "kept"
        for to in (ground.canary, ground.victim / ".git" / "objects"):
            if os.path.lexists(path):
                path.rename(kept)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(to)
            with pytest.raises(GitFailed, match=r"is a link|is incomplete"):
                Repository(ground.root).commit_once("k", "x", change=partial(pytest.fail, f"changed through {name}"))
            assert Repository(ground.root).state().problem, (name, to)
            path.unlink()
            if kept.exists():
                kept.rename(path)


@pytest.mark.usefixtures("boxed")
def test_a_link_among_the_objects_is_not_followed(ground: Ground) -> None:
    """Links in place of all 256 object folders are rejected, and nothing is written through them."""
    outside = ground.root.parent / "outside"
    outside.mkdir()
    for number in range(256):
        folder = ground.root / ".git" / "objects" / f"{number:02x}"
        if not folder.exists():
            folder.symlink_to(outside)
    with pytest.raises(GitFailed, match="is a link"):
        Repository(ground.root).commit_manual_changes("k")
    assert list(outside.iterdir()) == []


@pytest.mark.usefixtures("boxed")
def test_a_hard_link_is_not_written_through(ground: Ground) -> None:
    """A log that is a hard link to a file elsewhere stays unchanged; the commit is made."""
    log = ground.root / ".git" / "logs" / "HEAD"
    log.unlink()
    os.link(ground.canary, log)
    assert Repository(ground.root).commit_manual_changes("k").made


@pytest.mark.extended
@pytest.mark.parametrize("times", [5, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("boxed")
def test_links_that_are_swapped_in_are_not_followed(ground: Ground, times: int) -> None:
    """While files of `.git` are swapped for links to a file elsewhere, that file is never written."""
    stop = threading.Event()
    names = ("index", "logs/HEAD", "COMMIT_EDITMSG", "index.lock", "refs/heads/main")

    def swap() -> None:
        while not stop.is_set():
            for name in names:
                path = ground.root / ".git" / name
                kept = path.with_name("kept")
                with suppress(OSError):
                    path.rename(kept)
                with suppress(OSError):
                    path.symlink_to(ground.canary)
                with suppress(OSError):
                    path.unlink()
                with suppress(OSError):
                    kept.rename(path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(times):
            (ground.root / "new.txt").write_text(f"{number}\n")
            with suppress(GitFailed, AssertionError):
                Repository(ground.root).commit_manual_changes(f"k{number}")
    finally:
        stop.set()
        swapping.join()


def of(text: str) -> Plant:
    """Make `.git` a file."""

    def plant(ground: Ground) -> None:
        (ground.root / ".git").rename(ground.root / "moved")
        (ground.root / ".git").write_text(text.format(victim=ground.victim, root=ground.root))

    return plant


def linked_folder(ground: Ground) -> None:
    """Make `.git` a link."""
    (ground.root / ".git").rename(ground.root / "moved")
    (ground.root / ".git").symlink_to(ground.victim / ".git")


def forged_work_tree(ground: Ground) -> None:
    """Make `.git` name a linked work tree of the victim, which is another folder."""
    ground.git("worktree", "add", "--quiet", "-b", "side", str(ground.root.parent / "theirs-linked"), at=ground.victim)
    of(f"gitdir: {ground.victim}/.git/worktrees/theirs-linked\n")(ground)


def common(ground: Ground) -> None:
    """Plant `.git/commondir`."""
    (ground.root / ".git" / "commondir").write_text(f"{ground.victim}/.git\n")


def alternates(ground: Ground) -> None:
    """Plant a HEAD whose commit is in the victim's objects."""
    head = ground.git("rev-parse", "HEAD", at=ground.victim)
    (ground.root / ".git" / "refs" / "heads" / "main").write_text(f"{head}\n")
    (ground.root / ".git" / "objects" / "info" / "alternates").write_text(f"{ground.victim}/.git/objects\n")


def head(content: str) -> Plant:
    """Plant a HEAD."""
    return lambda ground: (ground.root / ".git" / "HEAD").write_text(content)


def bare(ground: Ground) -> None:
    """Plant a repository of files that `write_file` can write, without a `.git`, with a work tree elsewhere."""
    (ground.root / ".git").rename(ground.root.parent / "moved")
    for name in ("objects/x", "refs/x"):
        (ground.root / name).parent.mkdir()
        (ground.root / name).touch()
    (ground.root / "HEAD").write_text("ref: refs/heads/main\n")
    worktree = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {ground.victim}\n"
    (ground.root / "config").write_text(f"{worktree}\tfsmonitor = {ground.program}\n")


ELSEWHERE: dict[str, tuple[Plant, str]] = {
    ".git file": (of("gitdir: {victim}/.git\n"), "is a file that names a repository elsewhere"),
    ".git file to a folder beside": (of("gitdir: moved\n"), "is a file that names a repository elsewhere"),
    ".git link": (linked_folder, "is a link to a repository elsewhere"),
    "forged work tree": (forged_work_tree, "is a file that names a repository elsewhere"),
    "core.worktree": (lambda ground: setting(f"core.worktree={ground.victim}")(ground), "names another work tree"),
    "commondir": (common, "commondir"),
    "alternates": (alternates, "borrows objects"),
    "HEAD out of refs": (head("ref: refs/heads/../../../canary\n"), "names no branch"),
    "HEAD out of refs, absolute": (head("ref: refs/heads//etc/passwd\n"), "names no branch"),
    "HEAD elsewhere": (head("ref: ../../canary\n"), "names no branch"),
    "bare by write_file": (bare, "is a bare repository"),
    "reftable": (
        setting("core.repositoryFormatVersion=1", "extensions.refStorage=reftable"),
        r"unsupported extension: extensions\.refstorage",
    ),
    "unknown extension": (setting("core.repositoryFormatVersion=1", "extensions.x=1"), "unsupported extension"),
    "unknown format": (setting("core.repositoryFormatVersion=7"), "unsupported format"),
}


@pytest.mark.usefixtures("boxed")
@CONFINED_TOO
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_folder_cannot_redirect_git_to_another_repository(name: str, ground: Ground) -> None:
    """Redirections to other git folders, work trees, objects or formats are rejected; neither repository changes."""
    plant, words = ELSEWHERE[name]
    plant(ground)
    with pytest.raises(GitFailed, match=words):
        Repository(ground.root).commit_once("k", "x", change=lambda: pytest.fail("it was changed"))
    assert Repository(ground.root).state().problem


@pytest.mark.usefixtures("boxed")
def test_a_nested_bare_repository_is_plain_files(ground: Ground) -> None:
    """If the workspace has its own `.git`, files that look like a repository are committed like others."""
    inner = ground.root / "inner"
    inner.mkdir()
    ground.git("init", "--quiet", "--bare", at=inner)
    ground.git("config", "core.bare", "false", at=inner)
    ground.git("config", "core.worktree", str(ground.victim), at=inner)
    assert "inner/HEAD" in Repository(ground.root).commit_manual_changes("k").paths
    with pytest.raises(GitFailed, match="is a bare repository"):
        Repository(inner).commit_manual_changes("k")


@pytest.mark.usefixtures("boxed")
def test_the_workers_environment_does_not_reach_git(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """`GIT_*` variables and the user's configuration have no effect."""
    home = ground.root.parent / "home"
    ground.script(home / "hooks" / "pre-commit")
    (home / ".gitconfig").write_text(f'[core]\n\thooksPath = {home}/hooks\n\tfsmonitor = "{ground.program}"\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(ground.victim / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(ground.victim))
    monkeypatch.setenv("GIT_INDEX_FILE", str(ground.victim / ".git" / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", ground.program)
    assert Repository(ground.root).commit_manual_changes("k").paths == ("new.txt",)
    monkeypatch.undo()
    assert ground.git("log", "-1", "--format=%an") == "Agent (Holdfast)"


@pytest.mark.usefixtures("boxed")
def test_ignored_programs_are_reported_once(ground: Ground) -> None:
    """The first commit names the ignored hooks, filters and settings; filtered files are named each time."""
    hook("pre-commit")(ground)
    attributes("*.bin filter=lfs\n", "filter.lfs.clean=PROGRAM", "filter.lfs.required=true")(ground)
    (ground.root / "large.bin").write_bytes(b"content")

    def committed(key: str) -> str:
        (ground.root / key).touch()
        return str(commit_work(key, context=ToolContext(thread="t", workspace=ground.root, key=key, attempt=1, at=AT)))

    first, second = committed("k1"), committed("k2")
    assert "ignores these parts of the repository: hook pre-commit, filter lfs" in first
    assert "hook pre-commit" not in second
    for result in (first, second):
        assert "a person has to commit them: large.bin (filter lfs)" in result
    assert ground.git("log", "--format=%B").count("Holdfast-Not-Run: hook pre-commit, filter lfs") == 1
    assert "large.bin" not in ground.git("ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.usefixtures("boxed")
def test_the_pointer_of_a_filtered_file_stays(ground: Ground) -> None:
    """A file for which a filter stores other content in git keeps the stored content."""
    ground.git("config", "filter.lfs.clean", "echo pointer")
    (ground.root / ".gitattributes").write_text("*.bin filter=lfs\n")
    (ground.root / "large.bin").write_bytes(b"content")
    ground.git("add", ".")
    ground.git("commit", "--quiet", "-m", "Track")
    (ground.root / "large.bin").write_bytes(b"changed content")
    (ground.root / "other.txt").touch()
    commit = Repository(ground.root).commit_manual_changes("k")
    assert (commit.paths, commit.filtered) == (("other.txt",), ("large.bin (filter lfs)",))
    assert ground.git("show", "HEAD:large.bin") == "pointer"


@pytest.mark.usefixtures("boxed")
def test_plain_git_sees_the_commit(ground: Ground) -> None:
    """After the commit, plain git sees a clean tree, a valid repository, and the commit in its reflog."""
    ground.git("config", "core.autocrlf", "input")
    ground.git("pack-refs", "--all")
    ground.git("gc", "--quiet")
    (ground.root / "crlf.txt").write_bytes(b"a\r\n")
    Repository(ground.root).commit_manual_changes("k")
    assert ground.git("status", "--porcelain") == ""
    ground.git("fsck", "--strict")
    assert "Commit changes made by hand" in ground.git("reflog", "-1")
    assert ground.git("show", "HEAD:crlf.txt") == "a"
    assert not list((ground.root / ".git").glob("**/*.lock"))[1:]


@pytest.mark.usefixtures("boxed")
@CONFINED_TOO
@pytest.mark.parametrize(
    "name", ["all that git runs", "core.hooksPath", *extended(name for name in RUN_BY_GIT if name != "core.hooksPath")]
)
def test_the_release_example_runs_nothing_of_the_repository(name: str, ground: Ground) -> None:
    """Its git reads, commits and tags in a user's repository in the same safe way."""
    PLANTS[name](ground)
    ground.ran.unlink(missing_ok=True)  # plain git may have run the hook in the setup
    release_git(ground.root, "status", "--porcelain", "--untracked-files=all", "-z")
    release_git(ground.root, "add", "--", "new.txt")
    release_git(ground.root, "commit", "--quiet", "-m", "chore: release", "--", "new.txt")
    release_git(ground.root, "tag", "--annotate", "v1.0.0", "-m", "Release 1.0.0")
    assert commit_of(ground.root, "v1.0.0") == (ground.root / ".git" / "refs" / "heads" / "main").read_text().strip()
    ELSEWHERE["core.worktree"][0](ground)
    with pytest.raises(ReleaseGitFailed, match="names another work tree"):
        release_git(ground.root, "status")


@pytest.mark.extended
async def test_a_loop_on_a_prepared_folder_runs_nothing_of_it(
    rig: StartRig, repositories: Path, tmp_path: Path, stack: Stack
) -> None:
    """`starter.py loop DIR` runs no filters or hooks; a redirection blocks the loop before any LLM call."""
    ground = prepare(repositories, tmp_path / "at")
    (ground.root / "TASKS.md").write_text("- [ ] one\n")
    RUN_BY_GIT["filter"](ground)
    RUN_BY_GIT["nested submodule"](ground)
    hook("pre-commit")(ground)
    ground.ran.unlink(missing_ok=True)  # plain git ran the hook in the setup
    async with rig(catalog(), diligent) as at_work:
        shell = Shell(at_work, stack, tmp_path / "home")
        done = await asyncio.to_thread(shell.json, "loop", str(ground.root), "--wait")
        assert done["status"] == "completed"
        ground.require_unharmed()

        asked = len(at_work.llm.requests)
        ground.git("config", "core.worktree", str(ground.victim))
        started = await asyncio.to_thread(shell.json, "loop", str(ground.root))
        handle = at_work.client.get_workflow_handle(started["thread"])
        blocked = await status_of(handle, "blocked")
        assert "names another work tree" in blocked["blocked"]["message"]
        assert len(at_work.llm.requests) == asked
        await handle.cancel()
    ground.require_unharmed()
