"""The release example: its tools on a real repository, its script, and the demo end to end."""

import json
from pathlib import Path

import pytest

from holdfast import Absent, Found, ToolContext, Unknown
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.endpoints.script import JSON, Conversation
from holdfast.examples.release import repository
from holdfast.examples.release.catalog import catalog
from holdfast.examples.release.folders import new_folder
from holdfast.examples.release.git import NotARepository, git
from holdfast.examples.release.script import script
from holdfast.examples.release.tools import (
    Commits,
    ReleaseRefused,
    commits_since_tag,
    find_publication,
    find_tag,
    publications,
    publish,
    registry_of,
    run_tests,
    tag_release,
)
from tests.support.demos import play_demo

ROOT = Path(__file__).parents[2]
HEAD = "33b11b1cc6b6db489a4ed9e902cb75073acb2355"


@pytest.fixture
def trickle(tmp_path: Path) -> Path:
    """Return the example repository, ready to be released as 0.2.0."""
    folder = repository.create(tmp_path / "trickle")
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## 0.1.0", "## 0.2.0 (2026-01-14)\n\n## 0.1.0"))
    return folder


@pytest.fixture
def context(trickle: Path) -> ToolContext:
    """Return a tool context in that repository."""
    return context_of(trickle, key="key-1")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the registry confirm at once."""
    monkeypatch.setenv("HOLDFAST_EXAMPLE_CONFIRM_SECONDS", "0")


def context_of(workspace: Path, *, key: str) -> ToolContext:
    """Return the context of a tool call."""
    return ToolContext(thread="release-1", workspace=workspace, key=key, attempt=1)


@pytest.mark.extended
def test_the_repository_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's configuration nor the clock changes the commits, and no HOME is needed."""
    (tmp_path / ".gitconfig").write_text("[user]\nname = Somebody\n[commit]\ngpgSign = true\n[core]\nabbrev = 20\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")

    assert git(repository.create(tmp_path / "one"), "rev-parse", "HEAD") == HEAD

    monkeypatch.setenv("HOME", "/nowhere")
    assert git(repository.create(tmp_path / "two"), "rev-parse", "HEAD") == HEAD


def test_a_non_empty_folder_is_left_alone(tmp_path: Path) -> None:
    """The repository is created only in an empty folder."""
    (tmp_path / "mine.txt").touch()

    with pytest.raises(FileExistsError, match="not empty"):
        repository.create(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_commits_since_the_last_tag_are_listed(context: ToolContext) -> None:
    """Commits are listed newest first, without those of the last release."""
    commits: Commits = commits_since_tag(context)

    assert commits.last_tag == "v0.1.0"
    assert [commit.subject.partition(":")[0] for commit in commits.commits] == ["chore", "feat", "docs", "feat", "fix"]


def test_an_enclosing_repository_is_not_used(trickle: Path) -> None:
    """A workspace inside another repository is not itself a repository, so nothing is tagged there by mistake."""
    inner = trickle / "inner"
    inner.mkdir()

    with pytest.raises(NotARepository, match="--workspace"):
        commits_since_tag(context_of(inner, key="key-1"))
    with pytest.raises(NotARepository):
        tag_release("0.2.0", context_of(inner, key="key-1"))


@pytest.mark.extended
async def test_the_tests_run_and_leave_nothing_behind(trickle: Path, context: ToolContext) -> None:
    """The tests pass, or the first line of the output says that they fail."""
    assert (await run_tests(context)).startswith("Tests passed.\n")
    assert not git(trickle, "clean", "--dry-run", "-dx")

    (trickle / "tests" / "test_bucket.py").write_text("import unittest\nraise RuntimeError('broken')\n")
    git(trickle, "commit", "-qam", "test: break")
    assert (await run_tests(context)).startswith("Tests FAILED (exit code 1)")


async def test_code_that_the_llm_wrote_does_not_run(trickle: Path, context: ToolContext) -> None:
    """Tests are allowed without asking, so they run from the last commit."""
    (trickle / "tests" / "test_mine.py").write_text("import os\nos.mkdir('proof')\n")

    with pytest.raises(ReleaseRefused, match=r"tests/test_mine\.py"):
        await run_tests(context)
    with pytest.raises(ReleaseRefused, match=r"tests/test_mine\.py"):
        tag_release("0.2.0", context)

    assert not (trickle / "proof").exists()


def test_a_tag_is_found_by_its_own_call(trickle: Path, context: ToolContext) -> None:
    """The check is absent before the call and found after it; another call gets absent, and is rejected."""
    assert find_tag("0.2.0", context) == Absent()

    result = tag_release("0.2.0", context)

    assert find_tag("0.2.0", context) == Found(result)
    assert git(trickle, "rev-parse", "v0.2.0^{commit}") == git(trickle, "rev-parse", "HEAD")
    assert git(trickle, "log", "-1", "--format=%s") == "chore: release v0.2.0"
    assert not git(trickle, "status", "--porcelain")
    other = context_of(trickle, key="key-2")
    assert find_tag("0.2.0", other) == Absent()
    with pytest.raises(ReleaseRefused, match="exists already"):
        tag_release("0.2.0", other)


@pytest.mark.extended
def test_a_tag_interrupted_after_its_commit_is_made_on_that_commit(trickle: Path, context: ToolContext) -> None:
    """The second attempt makes no second commit."""
    git(trickle, "commit", "-qam", "chore: release v0.2.0")

    tag_release("0.2.0", context)

    assert git(trickle, "rev-parse", "v0.2.0^{commit}^") == HEAD


def test_a_version_missing_from_the_changelog_is_not_tagged(context: ToolContext) -> None:
    """The changelog's first entry must be the version."""
    with pytest.raises(ReleaseRefused, match="does not mention"):
        tag_release("0.3.0", context)


@pytest.mark.extended
@pytest.mark.usefixtures("at_once")
async def test_a_publication_is_found_by_its_own_call(trickle: Path, context: ToolContext) -> None:
    """One line beside the repository has version, commit and key; another call is rejected."""
    tag_release("0.2.0", context)
    assert find_publication(context) == Absent()

    result = await publish("0.2.0", context)

    commit = git(trickle, "rev-parse", "HEAD")
    assert publications(trickle) == [{"version": "0.2.0", "commit": commit, "key": "key-1"}]
    assert registry_of(trickle) == trickle.parent / "trickle-registry.jsonl"
    assert find_publication(context) == Found(result)
    other = context_of(trickle, key="key-2")
    assert find_publication(other) == Absent()
    with pytest.raises(ReleaseRefused, match="published already"):
        await publish("0.2.0", other)
    assert len(publications(trickle)) == 1


@pytest.mark.extended
@pytest.mark.usefixtures("at_once")
async def test_nothing_is_published_without_a_tag(trickle: Path, context: ToolContext) -> None:
    """The rejection names the tool to call first, and the registry stays unchanged."""
    with pytest.raises(ReleaseRefused, match="call tag_release first"):
        await publish("0.2.0", context)

    assert not registry_of(trickle).exists()


@pytest.mark.extended
def test_an_unreadable_registry_leaves_the_outcome_unknown(trickle: Path, context: ToolContext) -> None:
    """A truncated line does not show whether the publication happened."""
    registry_of(trickle).write_text('{"version": "0.2')

    assert isinstance(find_publication(context), Unknown)


@pytest.mark.parametrize(
    "version",
    [
        "",
        pytest.param("v1.0.0", marks=pytest.mark.extended),
        pytest.param("1.0", marks=pytest.mark.extended),
        pytest.param("../1.0.0", marks=pytest.mark.extended),
        pytest.param("1.0.0 --force", marks=pytest.mark.extended),
        pytest.param("--help", marks=pytest.mark.extended),
        pytest.param("1.0.0\n", marks=pytest.mark.extended),
        pytest.param("01.0.0", marks=pytest.mark.extended),
    ],
)
def test_only_a_version_reaches_git_and_the_registry(version: str) -> None:
    """Arguments that are no version never reach the tool."""
    for name in ("tag_release", "publish"):
        with pytest.raises(ArgumentsInvalid):
            catalog.tools[name].parse(json.dumps({"version": version}))


def test_only_effects_outside_the_repository_ask() -> None:
    """The policy asks only about those tools, and there is no shell."""
    spec = catalog.spec("release", default_llm="any")
    verdicts = {tool.name: evaluate(spec.policy, ToolUse(tool.name, tool.effect)).verdict for tool in spec.tools}

    assert {name for name, verdict in verdicts.items() if verdict == "ask"} == {"tag_release", "publish"}
    assert {name for name, verdict in verdicts.items() if verdict == "allow"} == set(verdicts) - {
        "tag_release",
        "publish",
    }
    assert "run_command" not in verdicts


def conversation(results: dict[str, str]) -> Conversation:
    """Return a conversation in which each of those tools was called once, with that result."""
    messages: list[JSON] = [{"role": "user", "content": "Release."}]
    for number, (tool, result) in enumerate(results.items()):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
        ]
    names = catalog.spec("release", default_llm="any").tools
    return Conversation({"messages": messages, "tools": [{"function": {"name": tool.name}} for tool in names]})


COMMITS = '{"last_tag": "v1.2.3", "commits": [{"commit": "abc", "date": "2026-01-14", "subject": "%s"}]}'
GONE_WELL = {
    "commits_since_tag": COMMITS % "fix: a leak",
    "read_file": "# Changelog\n\n## 1.2.3\n",
    "edit_file": "Edited CHANGELOG.md: replaced 1 occurrence.",
    "run_tests": "Tests passed.",
    "tag_release": "Tagged v1.2.4 at commit abc.",
    "publish": "Published 1.2.4 from commit abc.",
}


@pytest.mark.parametrize(
    ("subject", "version"),
    [
        ("fix: a leak", "1.2.4"),
        pytest.param("feat(api): more", "1.3.0", marks=pytest.mark.extended),
        pytest.param("feat!: other", "2.0.0", marks=pytest.mark.extended),
        pytest.param("whatever", "1.2.4", marks=pytest.mark.extended),
    ],
)
def test_the_script_derives_the_version_from_the_commits(subject: str, version: str) -> None:
    """The version follows semantic versioning."""
    reply = script(conversation({"commits_since_tag": COMMITS % subject, "read_file": GONE_WELL["read_file"]}))

    assert f"## {version} (2026-01-14)" in json.loads(reply.calls[0][1])["new"]


def test_the_script_continues_from_any_point() -> None:
    """The script's reply depends only on the results so far."""
    called = [
        [name for name, _ in script(conversation(dict(list(GONE_WELL.items())[:count]))).calls]
        for count in (0, 2, 3, 4, 5, 6)
    ]

    assert called == [
        ["commits_since_tag", "read_file"],
        ["edit_file"],
        ["run_tests"],
        ["tag_release"],
        ["publish"],
        [],
    ]


@pytest.mark.parametrize(
    "tool",
    [
        "commits_since_tag",
        pytest.param("edit_file", marks=pytest.mark.extended),
        pytest.param("run_tests", marks=pytest.mark.extended),
        pytest.param("tag_release", marks=pytest.mark.extended),
        pytest.param("publish", marks=pytest.mark.extended),
    ],
)
def test_the_script_ends_if_a_call_fails_or_is_denied(tool: str) -> None:
    """The script replies with the result, and calls nothing more."""
    results = {}
    for name, result in GONE_WELL.items():
        results[name] = "Denied by alice: not on a Friday" if name == tool else result
        if name == tool:
            break

    reply = script(conversation(results))

    assert not reply.calls
    assert "not on a Friday" in (reply.text or "")


def test_a_demo_removes_unused_folders_of_earlier_ones(tmp_path: Path) -> None:
    """A running demo keeps its folder, and unrelated folders stay."""
    (tmp_path / "demo" / "notes").mkdir(parents=True)
    running = new_folder(tmp_path)
    (tmp_path / "demo" / "old").mkdir()
    (tmp_path / "demo" / "old" / "demo.lock").touch()
    running_name = running.path.rename(running.path.with_name("running")).name

    latest = new_folder(tmp_path)
    running.close()
    latest.close()

    left = {path.name for path in (tmp_path / "demo").iterdir()}
    assert left == {"notes", running_name, latest.path.name}


@pytest.mark.slow
def test_the_demo_survives_two_kills(tmp_path: Path) -> None:
    """`make demo` ends with every fact right, and leaves nothing running."""
    facts = play_demo("holdfast.examples.release.demo", tmp_path)

    assert facts["workers killed (SIGKILL)"] == "2"
    assert facts["chain of digests"] == "intact"
    assert facts["effects found after a kill and adopted"] == "publish"
    assert facts["git tags: 1 expected"] == "1 done, 0 duplicated"
    assert facts["lines in the registry: 1 expected"] == "1 done, 0 duplicated"
    assert facts["rows in the ledger: 4 expected"] == "4 done, 0 duplicated"
