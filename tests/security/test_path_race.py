"""A path is checked and used in one step: swapping a folder or file for a link meanwhile gains nothing."""

import errno
import os
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.core.memory.errors import MemoryRefused
from holdfast.core.tools.decorator import ToolContext
from holdfast.workspace import beneath, search
from holdfast.workspace.file_tools import (
    EditRefused,
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from holdfast.workspace.files import NotAFile, NotText
from holdfast.workspace.memory.files import TASKS, MemoryFiles
from holdfast.workspace.paths import OutsideWorkspace, inside

REFUSED = (OutsideWorkspace, OSError, NotAFile, NotText, EditRefused, MemoryRefused)

SWAPS = """
import ctypes, os, sys
exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
pairs = [(name.encode(), name.encode() + b".link") for name in sys.argv[1:]]

def swap(one, other):
    if exchange is None or exchange(-100, one, -100, other, 2):
        os.rename(one, b"spare"); os.rename(other, one); os.rename(b"spare", other)

print("ready", flush=True)
while True:
    for pair in pairs:
        swap(*pair)
"""
"""Swaps each named file with the link beside it, as fast as possible."""


@pytest.fixture(params=["openat2", "walk"])
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select each of the two ways to open a path below a folder."""
    name: str = request.param
    if name == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel has no openat2, or does not let us use it")
    monkeypatch.setattr(beneath, "has_openat2", lambda: name == "openat2")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the disk's speed is not under test
    return name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a workspace in which `d` is a folder or a link outside, `f` and TASKS.md are files or links outside."""
    outside, root = tmp_path / "outside", tmp_path / "workspace"
    for place, text in ((outside, "secret"), (root / "d", "- [ ] own")):
        (place / "deep").mkdir(parents=True)
        for name in ("f", TASKS, "deep/f"):
            (place / name).write_text(text)
    (root / "d.link").symlink_to(outside)
    for name in ("f", TASKS):
        (root / name).write_text("- [ ] own")
        (root / f"{name}.link").symlink_to(outside / name)
    return root


@contextmanager
def swapping(root: Path, *names: str) -> Iterator[None]:
    """Run another process that swaps these names of the workspace with links outside."""
    with subprocess.Popen([sys.executable, "-c", SWAPS, *names], cwd=root, stdout=subprocess.PIPE) as swaps:
        assert swaps.stdout
        swaps.stdout.readline()
        try:
            yield
        finally:
            swaps.kill()


def seen(outside: Path) -> dict[str, tuple[int, int, str]]:
    """Return the state of everything outside: content, and when each file and folder last changed."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_text() if path.is_file() else "")
        for path in (outside, *outside.rglob("*"))
    }


def attempt(kind: int, context: ToolContext, number: int) -> str:
    """Use a file tool once on a path that is being swapped, and return its result."""
    where = ("d/f", "d/deep/f", "f")[number % 3]
    match kind:
        case 0:
            return read_file(where, context=context)
        case 1:
            return write_file(where, "- [ ] own", context=context)
        case 2:
            return write_file(f"d/new{number % 7}/deeper/x", "new", context=context)
        case 3:
            return edit_file(where, "own", new=f"own {number}", context=context)
        case _:
            return list_files("d/deep" if number % 2 else "d", context=context)


def raced(outcomes: Counter[str], count: int, *, enough: int) -> Iterator[int]:
    """Yield numbers until there were `count` attempts with enough of each outcome: otherwise it was no race."""
    for number in range(100 * count):
        if number >= count and min(outcomes["done"], outcomes["refused"]) >= enough:
            return
        yield number
    pytest.fail(f"it was no race: {outcomes}")


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(590)])])
def test_no_read_or_write_leaves_the_workspace_under_a_race(count: int, root: Path, mechanism: str) -> None:
    """Of thousands of reads, writes, edits and listings on a path that is swapped for a link, none gets outside."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    (root.parent / "outside" / "only_outside").write_text("secret")
    before, outcomes = seen(root.parent / "outside"), Counter[str]()
    with swapping(root, "d", "f"):
        for number in raced(outcomes, count, enough=20):
            try:
                result = attempt(number % 5, context, number)
                assert "secret" not in result
                assert "only_outside" not in result
                outcomes["done"] += 1
            except REFUSED:
                outcomes["refused"] += 1
    assert before == seen(root.parent / "outside")


@pytest.mark.extended
def test_searches_stay_inside_under_a_race(root: Path, mechanism: str) -> None:
    """A search reads in a separate process, and follows no link there either."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    with swapping(root, "d", "f"):
        for _ in range(20):
            with suppress(*REFUSED):
                assert "secret" not in search_files("secret|own", context=context)


@pytest.mark.extended
def test_memory_files_stay_inside_under_a_race(root: Path, mechanism: str) -> None:
    """Memory files may be links within the workspace; one that is swapped to lead outside is not used."""
    before, outcomes = seen(root.parent / "outside"), Counter[str]()
    with swapping(root, TASKS):
        for number in raced(outcomes, 400, enough=5):
            try:
                MemoryFiles(root).change(TASKS, lambda text, n=number: f"- [ ] {n} {text}"[:40])  # type: ignore[misc]
                outcomes["done"] += 1
            except REFUSED:
                outcomes["refused"] += 1
    assert before == seen(root.parent / "outside")
    assert "secret" not in "".join(path.read_text() for path in root.glob("TASKS*") if not path.is_symlink())


def test_the_race_can_be_won(root: Path) -> None:
    """The same attack succeeds against code that checks a path and then opens it by name."""
    with swapping(root, "d", "f"):
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            with suppress(*REFUSED):
                if "secret" in inside(root, "d/f").read_text():
                    return
    pytest.fail("the attack was never won, so it proves nothing of the tools")


@pytest.mark.parametrize("use", [read_file, list_files, search_files])
def test_special_paths_of_the_kernel_lead_nowhere(use: object, root: Path, mechanism: str) -> None:
    """`/proc/self/root`, `/proc/self/cwd`, `/dev/fd` and links to them count as outside, wherever they point."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    with beneath.open_workspace(root) as held:
        (root / "self").symlink_to("/proc/self")
        (root / "here").symlink_to(f"/proc/{os.getpid()}/fd/{held.fd}")
        paths = ["/proc/self/environ", "/proc/self/cwd", f"/proc/self/fd/{held.fd}/f", "self/root/etc/passwd"]
        paths += ["self/environ", "/dev/fd/0", "/proc/self/root/etc/passwd"]
        for path in paths:
            with pytest.raises(OutsideWorkspace):
                (use("x", path, context=context) if use is search_files else use(path, context=context))  # type: ignore[operator]
        with pytest.raises(OutsideWorkspace):  # its target is inside, but it is a link
            (use("x", "here/f", context=context) if use is search_files else use("here/f", context=context))  # type: ignore[operator]


def test_magic_links_of_proc_are_not_followed(mechanism: str) -> None:
    """Even with /proc itself as the workspace, `self/root` and `self/fd/…` lead nowhere."""
    context = ToolContext(thread="t", workspace=Path("/proc"), key="k", attempt=1)
    for path in (f"{os.getpid()}/root/etc/passwd", f"{os.getpid()}/cwd/pyproject.toml", "self/status"):
        with pytest.raises((OutsideWorkspace, OSError)):
            read_file(path, context=context)


def test_a_file_swapped_for_a_pipe_does_not_block(root: Path, mechanism: str) -> None:
    """A file that is swapped for a pipe before it is opened is rejected, and no call waits for a writer."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    (root / "f.link").unlink()
    os.mkfifo(root / "f.link")
    outcomes = Counter[str]()
    with swapping(root, "f"):
        for _ in raced(outcomes, 400, enough=5):
            try:
                assert read_file("f", context=context) == "- [ ] own"
                outcomes["done"] += 1
            except NotAFile:
                outcomes["refused"] += 1


def test_a_search_among_pipes_and_devices_ends(root: Path) -> None:
    """A search skips pipes, sockets and devices among its files."""
    os.mkfifo(root / "pipe")
    (root / "text").write_text("needle")
    with beneath.open_workspace(root) as held:
        matches = search.search_lines("needle", held.fd, files=["d.link/f", "pipe", "text", "../outside/f", "f.link"])
    assert matches == "text:1: needle"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_opened(root: Path, mechanism: str) -> None:
    """A device file in the workspace is neither read nor written, and stays in place."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    try:
        os.mknod(root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container may not make devices")
    with pytest.raises(NotAFile):
        read_file("zero", context=context)
    with pytest.raises(NotAFile):
        write_file("zero", "x", context=context)
    assert stat.S_ISCHR((root / "zero").stat().st_mode)


def test_a_hard_link_is_replaced_and_never_written_through(root: Path, mechanism: str) -> None:
    """Writing a file that has a hard link outside replaces the workspace's file, and not the other one."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    secret = root.parent / "outside" / "f"
    secret.chmod(0o4755)
    (root / "twin").hardlink_to(secret)
    write_file("twin", "new", context=context)
    edit_file("twin", "new", new="newer", context=context)
    assert secret.read_text() == "secret"
    assert (root / "twin").read_text() == "newer"
    assert stat.S_IMODE((root / "twin").stat().st_mode) == 0o755, "what an LLM wrote never runs as the file's owner"


def test_both_mechanisms_reject_the_same_paths(root: Path) -> None:
    """The walk and the kernel agree on which paths open."""
    if not beneath.has_openat2():
        pytest.skip("this kernel has no openat2, or does not let us use it")
    paths = [".", "d", "d/f", "d/deep/f", "d.link", "d.link/f", "f.link", "f/x", "none", "none/x", "..", "d/../f"]
    with beneath.open_workspace(root) as held:
        for path in paths:
            for flags in (os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_DIRECTORY):
                answers: list[int | None] = []
                for way in (beneath.by_walk, beneath.by_openat2):
                    try:
                        descriptor = way(held.fd, path, flags)
                        answers.append(os.fstat(descriptor).st_ino)
                        os.close(descriptor)
                    except OSError:
                        answers.append(None)
                # The kernel alone would resolve `..` within the folder, but checked paths have none.
                assert answers[0] == answers[1] or path == "d/../f", (path, flags, answers)


def test_no_descriptor_is_left_open(root: Path, mechanism: str) -> None:
    """Wherever a path is rejected, every opened folder is closed."""
    context = ToolContext(thread="t", workspace=root, key="k", attempt=1)
    before = open_descriptors(root)
    for number in range(15):
        for kind in range(5):
            with suppress(*REFUSED):
                attempt(kind, context, number)
        for path in ("d.link/f", "f/x/y", "none/x", "f.link", "..", "d"):
            with suppress(*REFUSED):
                write_file(path, "x", context=context)
    assert before == open_descriptors(root)


def open_descriptors(folder: Path) -> int:
    """Return how many descriptors in or below a folder this process has open; 0 if that is unknown.

    Other threads may open sockets meanwhile.
    """
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else ():
        with suppress(OSError):  # closed meanwhile
            count += descriptor.readlink().is_relative_to(folder.resolve())
    return count


FORBIDDEN = """
import ctypes, struct, sys
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
number, allow, refuse = 437, 0x7FFF0000, 0x00050000 | int(sys.argv[2])
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HP", len(rules), ctypes.addressof(code)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no seccomp here")
from holdfast.workspace import beneath
from holdfast.workspace.file_tools import read_file
from holdfast.core.tools.decorator import ToolContext
assert not beneath.has_openat2()
print(read_file("d/f", context=ToolContext(thread="t", workspace=Path(sys.argv[1]), key="k", attempt=1)))
"""
"""Blocks openat2 for itself, as some containers do, and reads a file."""


@pytest.mark.skipif(sys.platform != "linux", reason="openat2 is Linux's")
@pytest.mark.parametrize("number", [errno.EPERM, pytest.param(errno.ENOSYS, marks=pytest.mark.extended)])
def test_without_openat2_folders_are_walked(number: int, root: Path) -> None:
    """In a container that blocks openat2 (seccomp), the tools still work."""
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, root, str(number)], capture_output=True, text=True, check=False
    )
    if "no seccomp" in done.stderr:
        pytest.skip("this process may not filter its own system calls")
    assert done.stdout == "- [ ] own\n", done.stderr
