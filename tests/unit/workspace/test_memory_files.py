"""Memory files are changed completely or not at all, inside the workspace, and never over a person's changes."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.memory.errors import MemoryRefused, TaskNotFound
from holdfast.workspace.memory.files import (
    ERRORS,
    LARGEST,
    LEARNINGS,
    PROGRESS,
    STRATEGIES,
    TASKS,
    FileRefused,
    MemoryFiles,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, and a folder beside it that must not be reached."""
    (tmp_path / "secret.md").write_text("- [ ] secret\n")
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def append_unique(text: str | None) -> str:
    """Return a unique edit."""
    return (text or "") + "new\n"


def everything(root: Path) -> dict[str, tuple[str, bytes]]:
    """Return all content of the workspace's parent, including links."""
    return {
        str(path.relative_to(root.parent)): (str(path.readlink()), b"")
        if path.is_symlink()
        else ("", path.read_bytes())
        for path in root.parent.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files during a block, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_read_and_changed(root: Path) -> None:
    """An absent file reads as None; a change keeps the mode and a byte order mark."""
    files = MemoryFiles(root)
    assert files.read(TASKS) is None
    files.change(STRATEGIES, append_unique)
    assert files.read(STRATEGIES) == "new\n"

    (root / TASKS).write_bytes(b"\xef\xbb\xbf- [ ] a\r\n")
    (root / TASKS).chmod(0o640)
    files.change(TASKS, append_unique)
    assert (root / TASKS).read_bytes() == b"\xef\xbb\xbf- [ ] a\r\nnew\n"
    assert stat.S_IMODE((root / TASKS).stat().st_mode) == 0o640
    assert list(root.rglob("*.tmp")) == []


def test_an_edit_without_a_change_writes_nothing(root: Path) -> None:
    """Such an edit does not touch the file."""
    (root / TASKS).write_text("a")
    before = (root / TASKS).stat()
    MemoryFiles(root).change(TASKS, lambda text: text or "")
    assert (before.st_ino, before.st_mtime_ns) == ((root / TASKS).stat().st_ino, (root / TASKS).stat().st_mtime_ns)


def test_a_concurrent_save_by_a_person_is_kept(root: Path) -> None:
    """The edit is repeated on the person's version: a changed, new or removed file."""
    for before, saved in (("a\n", "a person's\n"), (None, "made\n"), ("a\n", None)):
        for path in root.iterdir():
            path.unlink()
        if before is not None:
            (root / TASKS).write_text(before)
        seen: list[str | None] = []

        def edit(text: str | None, saved: str | None = saved, seen: list[str | None] = seen) -> str:
            if not seen and saved is None:
                (root / TASKS).unlink()
            elif not seen:
                (root / TASKS).write_text(saved or "")
            seen.append(text)
            return append_unique(text)

        MemoryFiles(root).change(TASKS, edit)
        assert seen == [before, saved]
        assert (root / TASKS).read_text() == (saved or "") + "new\n"


def test_an_edit_of_a_file_that_keeps_changing_is_abandoned(root: Path) -> None:
    """After a few tries, the change is rejected and the last saved version stays."""
    count = iter(range(100))

    def edit(text: str | None) -> str:
        (root / TASKS).write_text(f"save {next(count)}")
        return "mine"

    with pytest.raises(FileRefused, match=r"TASKS.md is being changed by somebody else again and again"):
        MemoryFiles(root).change(TASKS, edit)
    assert (root / TASKS).read_text().startswith("save ")
    assert [path.name for path in root.iterdir()] == [TASKS]


def test_files_change_together_or_not_at_all(root: Path) -> None:
    """If one edit is rejected, or one file cannot be written, no file has changed."""
    (root / TASKS).write_text("a")
    (root / PROGRESS).write_bytes(b"\xff\xfe\x00")

    def refuse(text: str | None) -> str:
        raise TaskNotFound("no")

    before = everything(root)
    with pytest.raises(TaskNotFound):
        MemoryFiles(root).change_all({TASKS: append_unique, ERRORS: refuse})
    with pytest.raises(FileRefused, match=r"progress.txt is not UTF-8 text"):
        MemoryFiles(root).change_all({TASKS: append_unique, PROGRESS: append_unique})
    assert before == everything(root)


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("../secret.md", "leads outside the workspace"),
        ("../missing.md", "leads outside the workspace"),
        ("/etc/hostname", "leads outside the workspace"),
        (TASKS, "name a file"),
        ("loop.md", "name a file"),
        (".git/config", "belongs to git"),
        (".agents/skills.md", "instructs later runs"),
    ],
)
def test_unsafe_links_are_rejected(link: str, why: str, root: Path) -> None:
    """Links out of the workspace, in a circle, into git's folder or to agents' instructions are not written through."""
    for folder in (".git", ".agents"):
        (root / folder).mkdir()
    (root / ".git" / "config").write_text("")
    (root / "loop.md").symlink_to("./sub/../loop.md")
    (root / TASKS).symlink_to(link)
    before = everything(root)
    with pytest.raises(FileRefused, match=why):
        MemoryFiles(root).change(TASKS, append_unique)
    assert before == everything(root)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_inside_is_written_through(there: bool, root: Path) -> None:
    """The target is changed or created, and the link stays a link."""
    (root / "notes").mkdir()
    if there:
        (root / "notes" / "tasks.md").write_text("a\n")
    (root / TASKS).symlink_to("notes/tasks.md")
    MemoryFiles(root).change(TASKS, append_unique)
    assert (root / TASKS).readlink() == Path("notes/tasks.md")
    assert (root / "notes" / "tasks.md").read_text() == ("a\nnew\n" if there else "new\n")


@pytest.mark.parametrize("kind", ["folder", "pipe", "latin", "nul", "large"])
def test_an_unsuitable_file_is_rejected(kind: str, root: Path) -> None:
    """Folders, pipes, other encodings and large files are neither read nor changed, and nothing blocks."""
    path, why = root / TASKS, "is not UTF-8 text"
    if kind == "folder":
        path.mkdir()
        why = "is a folder"
    elif kind == "pipe":
        os.mkfifo(path)
        why = "is a pipe"
    elif kind == "large":
        path.write_bytes(b"x" * 10_000_000)
        why = "more than 1,000,000 bytes; move old entries"
    else:
        path.write_bytes(b"caf\xe9\n" if kind == "latin" else b"a\0b")
    before = everything(root)
    for use in (MemoryFiles(root).read, lambda name: MemoryFiles(root).change(name, append_unique)):
        with pytest.raises(FileRefused, match=why):
            use(TASKS)
    assert before == everything(root)


def test_a_change_that_would_be_too_large_is_rejected(root: Path) -> None:
    """A file never grows beyond what can be read again."""
    (root / LEARNINGS).write_text("x" * LARGEST[LEARNINGS])
    with pytest.raises(FileRefused, match=r"LEARNINGS.md has more than 10,000,000 bytes"):
        MemoryFiles(root).change(LEARNINGS, append_unique)


def test_a_full_disk_changes_nothing(root: Path) -> None:
    """If the new text does not fit, the old one stays, and no other file is left."""
    (root / TASKS).write_text("a")
    with largest_file(1_000), pytest.raises(FileRefused, match=r"TASKS.md: File too large"):
        MemoryFiles(root).change(TASKS, lambda _: "x" * 100_000)
    assert [(path.name, path.read_text()) for path in root.iterdir()] == [(TASKS, "a")]


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root; see the test on /sys")
def test_a_folder_that_cannot_be_written_is_rejected(root: Path) -> None:
    """The error names the workspace as not writable."""
    root.chmod(0o555)
    try:
        with pytest.raises(FileRefused, match="Permission denied"):
            MemoryFiles(root).change(TASKS, append_unique)
    finally:
        root.chmod(0o755)


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs /sys, which nobody can make files in")
def test_a_read_only_folder_is_an_error_for_root_too() -> None:
    """The error names the fault in plain words."""
    with pytest.raises(FileRefused, match=r"TASKS.md: "):
        MemoryFiles(Path("/sys/kernel")).change(TASKS, append_unique)


def test_temporary_files_of_a_crash_are_removed(root: Path) -> None:
    """The next change of the file removes the temporary file of a killed process."""
    names: list[str] = []

    class Killed(BaseException):
        """Stands for the end of the process."""

    files = MemoryFiles(root)

    def killed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        names.append(source)
        os.link(source, "kept", src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(Killed):
            files.change(TASKS, append_unique)
    (root / "kept").rename(root / names[0])
    files.change(TASKS, append_unique)
    assert [path.name for path in root.iterdir()] == [TASKS]


def test_every_rejection_is_of_one_type() -> None:
    """Callers need to catch only one type."""
    assert issubclass(FileRefused, MemoryRefused)
