"""What the scripted LLM does as the release agent: it decides from the conversation alone, so it survives any kill.

Each stage looks at the results of the calls so far. A result that is not what success looks like (a tool failed, a
person said no) ends the run with a sentence about what was done and what was not.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from examples.release.tools import Commits
from holdfast.testing import Conversation, Reply, call, default_script, say, slow, together

THINKING = 0.3
"""Seconds that a reply takes: an LLM that answers at once is hard to watch."""

SECTIONS = {"feat": "Added", "fix": "Fixed", "perf": "Changed", "refactor": "Changed"}
"""Sections of the changelog by type of commit; other types have no place in it."""

_SUBJECT = re.compile(r"(?P<type>\w+)(\([^)]*\))?(?P<breaking>!)?: (?P<text>.+)")


def script(conversation: Conversation) -> Reply:
    """The next reply of the release agent."""
    if "commits_since_tag" not in conversation.tools:
        return default_script(conversation)  # another agent's conversation
    return slow(_next(Release(conversation)), THINKING)


@dataclass(frozen=True)
class Release:
    """A release, as far as the conversation tells."""

    conversation: Conversation

    @cached_property
    def results(self) -> dict[str, str]:
        """The last result of each tool."""
        names: dict[str, str] = {}
        found: dict[str, str] = {}
        for message in self.conversation.messages:
            for made in message.get("tool_calls") or ():
                names[made["id"]] = made["function"]["name"]
            if message.get("role") == "tool":
                found[names.get(message["tool_call_id"], "")] = str(message.get("content"))
        return found

    @cached_property
    def commits(self) -> Commits | None:
        """What was committed since the last tag; None where the tool did not say."""
        try:
            return Commits.model_validate_json(self.results.get("commits_since_tag", ""))
        except ValueError:
            return None

    @property
    def version(self) -> str:
        """The next version by semantic versioning."""
        assert self.commits is not None
        if self.commits.last_tag is None:
            return "0.1.0"
        major, minor, patch = map(int, self.commits.last_tag.removeprefix("v").split("."))
        found = [match for commit in self.commits.commits if (match := _SUBJECT.match(commit.subject))]
        if major and any(match["breaking"] for match in found):
            return f"{major + 1}.0.0"
        if any(match["breaking"] or match["type"] == "feat" for match in found):
            return f"{major}.{minor + 1}.0"
        return f"{major}.{minor}.{patch + 1}"

    @property
    def news(self) -> dict[str, list[str]]:
        """What the changelog is to say, by section, oldest first."""
        assert self.commits is not None
        news: dict[str, list[str]] = {}
        for section in dict.fromkeys(SECTIONS.values()):
            for commit in reversed(self.commits.commits):
                match = _SUBJECT.match(commit.subject)
                if match and SECTIONS.get(match["type"]) == section:
                    news.setdefault(section, []).append(_as_entry(match["text"]))
        return news


def _as_entry(text: str) -> str:
    """With a capital letter, unless it begins with a name from the code."""
    return text[0].upper() + text[1:] if re.match(r"[a-z]+\b[^(._]", text) else text


@dataclass(frozen=True)
class Stage:
    """One call on the way to a release."""

    tool: str
    success: tuple[str, ...]
    """How a result begins that lets the release go on."""
    ask: Callable[[Release], Reply]


def _next(release: Release) -> Reply:
    if "commits_since_tag" not in release.results:
        first = together(call("commits_since_tag"), call("read_file", path="CHANGELOG.md"))
        return together(first, text="I'll look at what was committed since the last release, and at the changelog.")
    if release.commits is None:
        return say(
            f"I could not read the commits, so nothing was done. {_quoted(release.results['commits_since_tag'])}"
        )
    if not release.commits.commits:
        return say(f"There are no commits since {release.commits.last_tag}: nothing to release.")
    done: list[str] = []
    for stage in STAGES:
        result = release.results.get(stage.tool)
        if result is None:
            return stage.ask(release)
        if not result.startswith((*stage.success, "Done.")):  # a person who looked it up says "Done."
            return say(_stopped(stage, result, done))
        done.append(stage.tool)
    return say(_summary(release))


def _edit(release: Release) -> Reply:
    assert release.commits is not None
    heading = re.search(r"^## .+$", release.results.get("read_file", ""), re.MULTILINE)
    if heading is None:
        return say("CHANGELOG.md has no section to put the next one above, so nothing was done. Add a `## ` heading.")
    lines = [f"## {release.version} ({release.commits.commits[0].date})", ""]
    for section, entries in release.news.items():
        lines += [f"### {section}", *(f"- {entry}" for entry in entries), ""]
    new = "\n".join([*lines, heading[0]])
    return together(
        call("edit_file", path="CHANGELOG.md", old=heading[0], new=new),
        text=f"{len(release.commits.commits)} commits since {release.commits.last_tag}: the next is {release.version}.",
    )


def _stopped(stage: Stage, result: str, done: list[str]) -> str:
    before = f"Done before that: {', '.join(done)}." if done else "Nothing was done before that."
    return f"The release stopped at {stage.tool}. {_quoted(result)}\n{before}"


def _summary(release: Release) -> str:
    news = "\n".join(f"- {section}: {entry}" for section, entries in release.news.items() for entry in entries)
    return f"Released {release.version}. {release.results['tag_release']} {release.results['publish']}\n{news}"


def _quoted(result: str) -> str:
    return f"What came back: {json.dumps(result[:300], ensure_ascii=False)}"


STAGES = (
    Stage("edit_file", ("Edited ", "CHANGELOG.md reads as after"), _edit),
    Stage("run_tests", ("Tests passed",), lambda release: call("run_tests")),
    Stage("tag_release", ("Tagged ",), lambda release: call("tag_release", version=release.version)),
    Stage("publish", ("Published ",), lambda release: call("publish", version=release.version)),
)
"""The way to a release, after the first look."""
