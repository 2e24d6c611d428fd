"""The file tools stay inside the workspace, return bounded text, and change a file completely or not at all."""

import inspect
import os
import re
import socket
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.core.tools.decorator import ToolContext
from holdfast.core.tools.effects import Effect
from holdfast.workspace import beneath, file_tools, search
from holdfast.workspace.beneath import LeadsElsewhere
from holdfast.workspace.file_tools import (
    EditRefused,
    apply_edit,
    edit_file,
    list_files,
    read_file,
    search_files,
    shows_edit,
    workspace_tools,
    write_file,
)
from holdfast.workspace.files import NotAFile, NotText
from holdfast.workspace.paths import OutsideWorkspace, inside, matches_glob
from tests.support.examples import examples


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a workspace with files beside it that it must not reach."""
    (tmp_path / "secret.txt").write_text("secret needle")
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def context(root: Path) -> ToolContext:
    """Return the context of a first attempt in that workspace."""
    return ToolContext(thread="t", workspace=root, key="k", attempt=1)


def second_attempt(context: ToolContext) -> ToolContext:
    """Return the context of a second attempt of the same call."""
    return ToolContext(thread=context.thread, workspace=context.workspace, key=context.key, attempt=2)


def outside_content(root: Path) -> dict[str, str | None]:
    """Return the content of everything beside the workspace."""
    return {
        str(path.relative_to(root.parent)): path.read_text() if path.is_file() else None
        for path in root.parent.rglob("*")
        if root not in (path, *path.parents)
    }


def add_links(root: Path) -> None:
    """Create every kind of link that leads out of the workspace."""
    (root / "sub").mkdir()
    (root / "out").symlink_to(root.parent)
    (root / "sub" / "up").symlink_to("../..")
    (root / "file_out").symlink_to(root.parent / "secret.txt")
    (root / "dangling_out").symlink_to(root.parent / "new.txt")
    (root / "chain").symlink_to("sub/up/secret.txt")
    (root / "loop").symlink_to("loop")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")


TOOLS: list[Callable[..., Any]] = [
    lambda path, context: read_file(path, context=context),
    lambda path, context: list_files(path, context=context),
    lambda path, context: search_files("needle", path, context=context),
    lambda path, context: write_file(path, "written", context=context),
    lambda path, context: edit_file(path, "secret", new="changed", context=context),
]


@pytest.mark.parametrize("use", TOOLS, ids=["read", "list", "search", "write", "edit"])
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "sub/../../secret.txt",
        "{parent}/secret.txt",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        "out/secret.txt",
        "out/new/deep.txt",
        "sub/up/secret.txt",
        "sub/up",
        "file_out",
        "dangling_out",
        "chain",
        "loop/../out/secret.txt",
        "a/../sub/up/secret.txt",
        "{workspace}-sibling/file",
    ],
)
def test_paths_out_of_the_workspace_are_rejected(
    use: Callable[..., Any], path: str, root: Path, context: ToolContext
) -> None:
    """No tool follows a path that leads out, and nothing outside changes."""
    add_links(root)
    before = outside_content(root)

    with pytest.raises(OutsideWorkspace, match="leads outside the workspace"):
        use(path.format(parent=root.parent, workspace=root), context)

    assert before == outside_content(root)


PIECES = st.sampled_from(
    ["..", ".", "", "out", "sub", "up", "file_out", "dangling_out", "loop", "a", "new", "~", "%2e"]
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=7).map("/".join),
    st.lists(PIECES, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    st.text(max_size=40),
    st.text(st.characters(), min_size=200, max_size=300),
)


@settings(
    max_examples=examples(50, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=PATHS)
def test_any_path_stays_inside_or_is_rejected(path: str, root: Path, context: ToolContext) -> None:
    """For any path, each tool rejects it or touches only the workspace."""
    if not (root / "sub").exists():
        add_links(root)
    before = outside_content(root)

    for use in (TOOLS[0], TOOLS[1], TOOLS[3], TOOLS[4]):
        try:
            assert "secret" not in str(use(path, context))
        except (OSError, ValueError, OutsideWorkspace, NotAFile, NotText, EditRefused):
            continue

    assert before == outside_content(root)


@pytest.mark.parametrize("path", ["nul\0byte", "\ud800", "x/" * 3000])
def test_an_invalid_path_is_rejected(path: str, root: Path) -> None:
    """Text that cannot name a file is rejected with a plain message instead of the system's error."""
    with pytest.raises(ValueError, match=r"cannot be a path|file names cannot have"):
        inside(root, path)


def test_an_overlong_name_is_rejected(context: ToolContext) -> None:
    """The error for a name too long for the file system contains the name."""
    with pytest.raises(OSError, match=r"^x+: File name too long"):
        write_file("x" * 300, "text", context=context)


@pytest.mark.parametrize("use", TOOLS, ids=["read", "list", "search", "write", "edit"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("docs/link", "docs/link: docs/link is a link to src; name src instead"),
        ("docs/link/app.py", "docs/link is a link to src; name src/app.py instead"),
        ("docs/link/new/app.py", "docs/link is a link to src; name src/new/app.py instead"),
        ("app", "app is a link to src/app.py; name src/app.py instead"),
        ("circle", "circle is a link that leads in a circle; name a file or a folder"),
    ],
)
def test_a_link_is_rejected_with_its_target(
    use: Callable[..., Any], path: str, says: str, root: Path, context: ToolContext
) -> None:
    """The policy judged the text of the path, so no link is followed; the LLM reads which path to use instead."""
    (root / "docs").mkdir()
    (root / "src").mkdir()
    (root / "src" / "app.py").write_text("secret")
    (root / "docs" / "link").symlink_to("../src")
    (root / "app").symlink_to(root / "src" / "app.py")
    (root / "circle").symlink_to("docs/../circle")

    with pytest.raises(LeadsElsewhere, match=re.escape(says)):
        use(path, context)

    assert sorted(path.name for path in root.rglob("*")) == ["app", "app.py", "circle", "docs", "link", "src"]
    assert (root / "src" / "app.py").read_text() == "secret"


def test_parent_folders_are_resolved_in_the_text_of_a_path(root: Path, context: ToolContext) -> None:
    """`..` is resolved in the text, as the policy judged it: `link/..` is the folder that contains the link."""
    (root / "link").symlink_to("/etc")

    write_file("link/../a//b/./c.txt", "one", context=context)

    assert "one" == read_file(f"../{root.name}/a/b/c.txt", context=context) == (root / "a/b/c.txt").read_text()


def test_a_workspace_may_be_reached_through_a_link(root: Path) -> None:
    """The path of the workspace itself may contain a link."""
    linked = root.parent / "linked"
    linked.symlink_to(root)
    context = ToolContext(thread="t", workspace=linked, key="k", attempt=1)

    write_file("a.txt", "text", context=context)

    assert list_files(context=context) == "a.txt"
    assert read_file(f"{linked}/a.txt", context=context) == "text"


@pytest.mark.parametrize("use", [TOOLS[0], TOOLS[3], TOOLS[4]], ids=["read", "write", "edit"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device", ".", ""])
def test_only_regular_files_are_accepted(
    use: Callable[..., Any], kind: str, root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything but a regular file is rejected at once: no tool blocks on a pipe or replaces it."""
    monkeypatch.chdir(root)  # the name of a socket must be short
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        if kind == "device":
            context = ToolContext(thread="t", workspace=Path("/dev"), key="k", attempt=1)
            kind = "null"

        with pytest.raises(NotAFile, match=r"is a (folder|pipe)"):
            use(kind, context)

    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_a_search_skips_pipes(root: Path, context: ToolContext) -> None:
    """A search does not block on a pipe among the files."""
    os.mkfifo(root / "pipe")
    (root / "file.txt").write_text("needle")

    assert search_files("needle", context=context) == "file.txt:1: needle"


def test_a_missing_file_is_named(context: ToolContext) -> None:
    """The error contains the name that the LLM used, with advice."""
    with pytest.raises(FileNotFoundError, match=r"^no\.txt: No such file or directory; list_files shows"):
        read_file("no.txt", context=context)


@pytest.mark.parametrize("content", [b"\x00\x01binary", "größe".encode("latin-1"), b"fine\n" * 3 + b"\xff\n"])
def test_a_file_that_is_not_text_is_rejected(content: bytes, root: Path, context: ToolContext) -> None:
    """A file that is not UTF-8 text is rejected with its size and is not edited."""
    (root / "file").write_bytes(content)

    for use in (TOOLS[0], TOOLS[4]):
        with pytest.raises(NotText, match=rf"file is not UTF-8 text \({len(content)} bytes\)"):
            use("file", context)

    assert content == (root / "file").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(content=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_written_text_is_read_back(content: str, context: ToolContext) -> None:
    """Text is read back exactly as it was written, including line ends."""
    write_file("file", content, context=context)

    assert content == read_file("file", limit=10_000, context=context)


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (1, 2, "1\n2\n[lines 1 to 2 of a file of 9 bytes; read on with offset=3]"),
        (3, 1, "3\n[lines 3 to 3 of a file of 9 bytes; read on with offset=4]"),
        (4, 1, "4\n[lines 4 to 4 of a file of 9 bytes; read on with offset=5]"),
        (5, 1, "5"),
        (4, 99, "4\n5"),
        (6, 1, "[file ends before line 6; it has 9 bytes]"),
        (99, 1, "[file ends before line 99; it has 9 bytes]"),
    ],
)
def test_a_part_of_a_file_can_be_read(offset: int, limit: int, expected: str, root: Path, context: ToolContext) -> None:
    """The result is the requested part and says how to read on if there is more."""
    (root / "file").write_text("1\n2\n3\n4\n5")

    assert expected == read_file("file", offset, limit=limit, context=context)


def test_reading_past_the_last_line(root: Path, context: ToolContext) -> None:
    """After the last line end there is no further line; an empty file is reported as empty."""
    (root / "file").write_text("1\n2\n")
    (root / "empty").touch()

    assert read_file("file", 3, context=context) == "[file ends before line 3; it has 4 bytes]"
    assert read_file("empty", context=context) == "[empty is empty]"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(lines=st.lists(st.text("aß\r", max_size=5), min_size=1, max_size=12), limit=st.integers(1, 5))
def test_consecutive_parts_cover_the_file(lines: list[str], limit: int, root: Path, context: ToolContext) -> None:
    """Reading on as each part says yields the whole file."""
    text = "\n".join(lines)
    assume(text)
    (root / "file").write_bytes(text.encode())

    parts, offset = "", 1
    for _ in range(len(lines) + 1):
        part, _, note = read_file("file", offset, limit=limit, context=context).partition("[lines")
        parts += part
        if not note:
            break
        offset = int(note.rpartition("=")[2].removesuffix("]"))

    assert text == parts


def test_huge_files_are_read_in_part(root: Path, context: ToolContext) -> None:
    """A huge file is not loaded: each part is bounded, long lines are clipped, and skipping is fast."""
    with (root / "long").open("wb") as file:
        file.write("é".encode() * 5_000_001 + b"\n")
        file.writelines(b"x" * 999 + b"\n" for _ in range(200))

    first = read_file("long", limit=1, context=context)
    second = read_file("long", 2, limit=10**9, context=context)

    assert first.startswith("é" * 999)
    assert "[…9,998,005 more bytes in this line]\n[lines 1 to 1 of a file" in first
    assert file_tools.READ_BYTES + 100 > len(second) > file_tools.READ_BYTES
    assert second.endswith("read on with offset=102]")


def test_a_clipped_line_ends_with_a_whole_character(root: Path, context: ToolContext) -> None:
    """Clipping never splits a character, so clipped text remains valid."""
    for shift in range(5):
        (root / "file").write_text("x" * shift + "€🎉" * 1000)
        assert "more bytes in this line]" in read_file("file", context=context)


def test_a_write_creates_folders(root: Path, context: ToolContext) -> None:
    """A write creates missing folders and leaves no other file."""
    assert write_file("a/b/c.txt", "héy\n", context=context) == "Wrote 5 bytes to a/b/c.txt."

    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["a", "a/b", "a/b/c.txt"]


def test_the_mode_is_kept(root: Path, context: ToolContext) -> None:
    """A file keeps its mode when it is written or edited; a new one gets its mode from the umask."""
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o754)
    (root / "plain").touch()

    write_file("run.sh", "#!/bin/sh\necho\n", context=context)
    edit_file("run.sh", "echo", new="true", context=context)
    write_file("new", "", context=context)

    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o754
    assert (root / "plain").stat().st_mode == (root / "new").stat().st_mode


def test_a_failed_write_changes_nothing(root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails midway keeps the old text and leaves no other file."""
    write_file("file", "old", context=context)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="file: No space left on device"):
        write_file("file", "new", context=context)

    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", "sub/../.git/config"])
def test_the_git_folder_is_not_writable(path: str, root: Path, context: ToolContext) -> None:
    """Files from which git runs commands cannot be written."""
    (root / "sub" / ".git").mkdir(parents=True)

    with pytest.raises(OutsideWorkspace, match="belongs to git"):
        write_file(path, "echo", context=context)


@pytest.mark.parametrize(
    ("before", "old", "new", "everywhere", "after"),
    [
        ("a b c", "b", "x", False, "a x c"),
        ("a b b", "b", "x", True, "a x x"),
        ("a b c", " b", "", False, "a c"),
        ("def f():\n", "def f():\n", "def f():\n    pass\n", False, "def f():\n    pass\n"),
        ("foo foobar", "foo", "foobar", True, "foobar foobarbar"),
        ("one\r\ntwo\r\n", "one\ntwo", "1\n2", False, "1\r\n2\r\n"),
        ("a\r\nb\nc\r\n", "a\nb", "A\nB", False, "A\r\nB\nc\r\n"),
        ("a\nb\r\nc\n", "a\nb\nc", "A\nB\nC", False, "A\nB\r\nC\n"),
        ("a\r\nb\nc\r\n", "b\nc", "B\nb\nC", False, "a\r\nB\nb\nC\r\n"),
        ("a\r\nb\nc\r\n", "c", "C\nd", False, "a\r\nb\nC\r\nd\r\n"),
        ("a\nb\r\nlast", "last", "la\nst", False, "a\nb\r\nla\r\nst"),
        ("x\r\ny\nx\ny\r\n", "x\ny", "z\nw", True, "z\r\nw\nz\nw\r\n"),
        ("\ufeffa\r\nb\n\rc\r\n", "a\nb", "A", False, "\ufeffA\n\rc\r\n"),
        ("a\r\nb\n", "a\r\nb", "a\nb", False, "a\nb\n"),
        ("héé\n", "éé", "ée", False, "hée\n"),
    ],
)
def test_an_edit_is_made_once(
    before: str, old: str, new: str, everywhere: bool, after: str, root: Path, context: ToolContext
) -> None:
    """An edit replaces the one occurrence, or all if asked; a second attempt detects it and changes nothing."""
    (root / "file").write_bytes(before.encode())

    first = edit_file("file", old, new=new, replace_all=everywhere, context=context)
    content = (root / "file").read_bytes().decode()
    second = edit_file("file", old, new=new, replace_all=everywhere, context=second_attempt(context))

    assert after == content == (root / "file").read_bytes().decode()
    assert first.startswith("Edited file: replaced ")
    assert "already shows this edit" in second


TEXT = st.text("ab\n", max_size=12)


@settings(max_examples=examples(200, 1_000), deadline=None)
@given(
    before=TEXT, old=st.text("ab\n", min_size=1, max_size=4), new=st.text("ab\n", max_size=5), everywhere=st.booleans()
)
def test_a_completed_edit_is_detected(before: str, old: str, new: str, everywhere: bool) -> None:
    """With any texts, a completed edit is detected, so it is never made twice."""
    try:
        after = apply_edit(before, old, new=new, replace_all=everywhere, path="file")
    except EditRefused:
        return

    assert shows_edit(after, old, new=new)


@given(before=TEXT, old=st.text("ab", min_size=1, max_size=3))
def test_a_missing_edit_is_not_reported_as_made(before: str, old: str) -> None:
    """If `new` is not in the file, the edit does not count as made."""
    assert not shows_edit(before, old, new="new")


def test_a_second_attempt_makes_a_missing_edit(root: Path, context: ToolContext) -> None:
    """A second attempt makes the edit if the first one stopped before it."""
    (root / "file").write_text("a b c")

    edit_file("file", "b", new="x", context=second_attempt(context))

    assert (root / "file").read_text() == "a x c"


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        ("a b c", "x", "y", "`old` does not occur in file; read the file"),
        ("a y c", "x", "y", "`old` does not occur in file; `new` does, so the edit may be made already"),
        ("a b c", "x", "", "`old` does not occur in file; read the file"),
        ("b b", "b", "x", "`old` occurs 2 times in file; include more context, or set replace_all"),
        ("ab\n", "a", "ab", "file has `old` only within `new`"),
        ("aabb", "ab", "", "file would still contain `old`"),
        ("a", "", "x", "`old` must be text of the file"),
        ("a", "a", "a", "`new` must differ"),
    ],
)
def test_an_impossible_edit_is_rejected(
    text: str, old: str, new: str, says: str, root: Path, context: ToolContext
) -> None:
    """The error gives the reason and the remedy; nothing changes."""
    (root / "file").write_text(text)

    with pytest.raises(EditRefused, match=says):
        edit_file("file", old, new=new, context=context)

    assert text == (root / "file").read_text()


def test_concurrent_edits_are_all_made(root: Path, context: ToolContext) -> None:
    """Concurrent edits of one file do not lose each other's changes."""
    numbers = range(16)
    (root / "file").write_text("".join(f"<{number}>" for number in numbers))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: edit_file("file", f"<{n}>", new=f"({n})", context=context), numbers))

    assert "".join(f"({number})" for number in numbers) == (root / "file").read_text()


@pytest.mark.parametrize(
    ("pattern", "fits", "misses"),
    [
        ("**/*", ["a", "a/b", "a/b/c.py"], []),
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("./*", ["a"], ["a/b"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "lib/src/a.py"]),
        ("src/**", ["src/a", "src/a/b"], ["lib/a"]),
        ("**/test/*", ["test/a", "x/test/a"], ["test/a/b"]),
        ("a/?[0-9]/**/z", ["a/b1/z", "a/b1/c/d/z"], ["a/bc/z", "a/b1/c"]),
    ],
)
def test_globs_match(pattern: str, fits: list[str], misses: list[str]) -> None:
    """A star stays within a name, a double star spans folders, and a bare name matches in any folder."""
    assert fits == [path for path in fits + misses if matches_glob(path, pattern)]


def test_no_glob_is_slow() -> None:
    """A pattern built to be slow is matched quickly."""
    start = time.process_time()

    matches_glob("a/" * 200 + "b", "**/a/" * 100 + "c")
    matches_glob("a" * 250, "*a" * 100 + "b")

    assert time.process_time() - start < 20


def test_a_listing_is_sorted_and_marked(root: Path, context: ToolContext) -> None:
    """A listing marks folders and links, enters neither links nor .git, and is sorted."""
    add_links(root)
    (root / ".git").mkdir()
    (root / ".git" / "config").touch()
    (root / "sub" / "file.txt").touch()

    listed = list_files(context=context).splitlines()

    assert listed == [
        "a@",
        "b@",
        "chain@",
        "dangling_out@",
        "file_out@",
        "loop@",
        "out@",
        "sub/",
        "sub/file.txt",
        "sub/up@",
    ]
    assert list_files("sub", "*.txt", context=context) == "sub/file.txt"
    assert list_files("sub", "*.py", context=context) == "[nothing in sub matches *.py]"
    with pytest.raises(NotADirectoryError, match=r"^sub/file\.txt: Not a directory"):
        list_files("sub/file.txt", context=context)


def test_a_listing_is_bounded(root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long listing shows the nearest files and says that there may be more."""
    (root / "deep" / "down").mkdir(parents=True)
    for number in range(5):
        (root / f"{number}").touch()
        (root / "deep" / "down" / f"{number}").touch()

    monkeypatch.setattr(file_tools, "LISTED", 7)
    assert list_files(context=context).split()[:8] == ["0", "1", "2", "3", "4", "deep/", "deep/down/", "[there"]
    monkeypatch.setattr(beneath, "WALKED", 6)
    assert list_files(context=context).split()[:7] == ["0", "1", "2", "3", "4", "deep/", "[there"]


def test_a_search_returns_file_line_and_text(root: Path, context: ToolContext) -> None:
    """A search leaves out binary files, links and .git."""
    for name in ("a.txt", "sub/b.py", ".git/config", "odd\nname"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("first\r\nA needle here\r\nlast")
    (root / "binary").write_bytes(b"needle\0")
    (root / "latin").write_bytes("ein nädle needle".encode("latin-1"))
    (root / "link").symlink_to(root.parent / "secret.txt")

    assert search_files("(?i)NEEDLE", context=context).split("\n") == [
        "a.txt:2: A needle here",
        "latin:1: ein n\ufffddle needle",
        "odd",
        "name:2: A needle here",
        "sub/b.py:2: A needle here",
    ]
    assert search_files(r"^A\s\w+", glob="*.py", context=context) == "sub/b.py:2: A needle here"
    assert search_files("last$", "sub", context=context) == "sub/b.py:3: last"
    assert search_files("first", "a.txt", context=context) == "a.txt:1: first"
    assert search_files("nothing", glob="[!b]*", context=context) == "[no line matches 'nothing' in 3 files]"


def test_search_hits_are_bounded(root: Path, context: ToolContext) -> None:
    """A search returns a limited number of hits, each clipped around the match, and says that there are more."""
    (root / "many").write_text("needle\n" * 1000)
    (root / "wide").write_text("x" * 5000 + "needle" + "y" * 4000 + "\n")

    many = search_files("needle", "many", context=context).splitlines()
    wide = search_files("needle", "wide", context=context)

    assert len(many) == search.SEARCH_HITS + 1
    assert many[-1] == "[more lines match; narrow the pattern, the path or the glob]"
    assert wide == f"wide:1: …{'x' * 100}needle{'y' * 194}…"


def test_long_lines_keep_their_numbers(root: Path, context: ToolContext) -> None:
    """Line numbers count whole lines, although a long line is searched in pieces."""
    (root / "file").write_text("x" * 25_000 + "needle\nsecond\nneedle\n")

    assert [int(hit.split(":")[1]) for hit in search_files("needle", context=context).splitlines()] == [1, 3]


def test_a_search_has_a_time_limit(root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search stops at its time limit and returns the hits found by then."""
    (root / "1").write_text("aab\n")
    (root / "2").write_text("a" * 5000 + "!\n")
    hits, seconds = "", 0.0
    for seconds in (0.5, 5, 50):  # on a busy machine, the search may take a second to start
        monkeypatch.setattr(search, "SEARCH_SECONDS", seconds)
        hits = search_files("^(a+)+b$", context=context)
        if "aab" in hits:
            break

    assert hits == f"1:1: aab\n[stopped after {seconds:g} s; search fewer files, or simplify the pattern]"


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "needle\0"])
def test_an_invalid_pattern_is_rejected(pattern: str, context: ToolContext) -> None:
    """A pattern that is not a regular expression is rejected with the reason."""
    with pytest.raises(ValueError, match=r"is not a regular expression: .|has a NUL"):
        search_files(pattern, context=context)


def test_a_search_without_hits_says_so(context: ToolContext) -> None:
    """The result says that no line matches, even if there are no files."""
    assert search_files("x", context=context) == "[no line matches 'x' in 0 files]"


def test_the_tools_declare_their_effects() -> None:
    """Each tool declares its effect class, and its schema omits only the context."""
    tools = workspace_tools(confine="never")
    effects = {tool.spec.name: tool.spec.effect for tool in tools}

    assert effects == {
        "list_files": Effect.READ,
        "read_file": Effect.READ,
        "search_files": Effect.READ,
        "write_file": Effect.IDEMPOTENT,
        "edit_file": Effect.IDEMPOTENT,
        "run_command": Effect.UNSAFE,
    }
    assert all("context" not in tool.spec.parameters["properties"] for tool in tools)


def test_file_tools_run_in_threads() -> None:
    """Only `run_command` is async; the others block, so the caller runs them in a thread."""
    tools = workspace_tools(confine="never")
    assert [tool.spec.name for tool in tools if inspect.iscoroutinefunction(tool.function)] == ["run_command"]
