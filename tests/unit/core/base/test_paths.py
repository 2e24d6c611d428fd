"""Paths are compared by their normalised text, without following links."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Effect, Policy, WorkspacePath, allow, deny, tool
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.base.paths import in_workspace, is_outside, normalised, paths_in
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.workspace.file_tools import workspace_tools
from tests.support.examples import examples

NAMES = st.sampled_from(["..", ".", "", "docs", "src", "a.py", "...", "~", " ", "ö", "%2e", "\\"])
PATHS = st.one_of(
    st.lists(NAMES, max_size=8).map("/".join),
    st.lists(NAMES, max_size=8).map(lambda names: "/" + "/".join(names)),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
)


@settings(max_examples=examples(200, 1_000))
@given(PATHS)
def test_normalising_agrees_with_the_operating_system(path: str) -> None:
    """The result equals `os.path.normpath` (except for `//`, which POSIX leaves open) and is idempotent."""
    wanted = os.path.normpath(path)  # the very function under comparison
    wanted = "/" + wanted.lstrip("/") if path.startswith("/") else wanted
    assert normalised(path) == wanted
    assert normalised(normalised(path)) == normalised(path)


@settings(max_examples=examples(200, 1_000))
@given(PATHS, st.sampled_from(["/w/docs", "/w", "/", "/w/docs/"]))
def test_a_path_in_the_workspace_is_relative_to_it(path: str, workspace: str) -> None:
    """The result names the same path; outside the workspace it is absolute or begins with `..`."""
    relative = in_workspace(path, workspace)
    place = Path("/" + os.path.normpath(os.path.join(workspace, path)).lstrip("/"))  # noqa: PTH118  # without links
    inside = place.is_relative_to(os.path.normpath(workspace))
    assert is_outside(relative) == (not inside)
    assert os.path.normpath(os.path.join(workspace, relative)).lstrip("/") == str(place).lstrip("/")  # noqa: PTH118
    assert in_workspace(relative, workspace) == relative


def test_arguments_that_could_be_paths() -> None:
    """Texts and lists of texts count; long texts, numbers and objects do not."""
    arguments = {
        "a": "docs/../src",
        "b": ["/w/x", "../y"],
        "c": 1,
        "d": {"e": "f"},
        "g": "x" * 5_000,
        "h": [1],
        "i": "",
    }
    assert paths_in(arguments, "/w") == {"a": "src", "b": ["x", "../y"], "i": "."}
    assert paths_in("no arguments", "/w") == {}
    assert paths_in({"a": ["x"] * 301}, "/w") == {}


ONLY_DOCS = Policy(rules=(allow("write", when='paths.path.startsWith("docs/")'), deny("write")))


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("docs/a.md", "allow"),
        ("./docs//a.md", "allow"),
        ("/w/docs/a.md", "allow"),
        ("src/../docs/a.md", "allow"),
        ("docs/../src/app.py", "deny"),
        ("docs/../../w/src/app.py", "deny"),
        ("/w/docs/../src/app.py", "deny"),
        ("/elsewhere/docs/a.md", "deny"),
        ("docs/../../docs/a.md", "deny"),
        ("docs", "deny"),
        ("docs/" + "x/../" * 2_000 + "a.md", "deny"),
        (7, "deny"),
    ],
)
def test_a_condition_on_paths_applies_to_every_spelling(path: object, verdict: str) -> None:
    """For a tool that takes plain text, no spelling of another path satisfies a condition on `paths`."""
    use = ToolUse("write", Effect.UNSAFE, arguments={"path": path}, workspace="/w")
    assert evaluate(ONLY_DOCS, use).verdict == verdict


def test_a_workspace_path_is_normalised_before_it_is_judged() -> None:
    """A tool whose parameter is a `WorkspacePath` is judged and called with the normalised path."""

    @tool(effect="unsafe")
    def move(path: WorkspacePath, to: list[WorkspacePath], then: WorkspacePath = "a/./b") -> None:
        """Move."""

    read = move.read('{"path": "docs/../src//app.py", "to": ["./x/", ""]}')
    assert read.text == '{"path":"src/app.py","then":"a/b","to":["x","."]}'
    assert read.values["path"] == "src/app.py"
    with pytest.raises(ArgumentsInvalid, match="path: Value error, a path cannot contain a NUL"):
        move.read('{"path": "a\\u0000b", "to": []}')


@pytest.mark.parametrize("name", ["list_files", "read_file", "search_files", "write_file", "edit_file"])
def test_the_file_tools_take_normalised_paths(name: str) -> None:
    """Every file tool is judged with `src/app.py` when called with `docs/../src/app.py`."""
    file_tool = next(each for each in workspace_tools(confine="never") if each.spec.name == name)
    more = {"search_files": '"pattern": "x",', "write_file": '"content": "x",', "edit_file": '"old": "a", "new": "b",'}
    read = file_tool.read(f'{{{more.get(name, "")} "path": "docs/../src/app.py"}}')
    assert '"path":"src/app.py"' in read.text
