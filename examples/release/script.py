"""The scripted LLM of the release agent: a pure function of the conversation, so it survives any kill.

Each phase checks the results of the calls so far. An unsuccessful result (a tool failed, a person denied the call) ends
the run with a sentence about the completed phases.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from holdfast.examples.release.tools import Commits
from holdfast.testing import Conversation, Reply, call, default_script, say, slow, together

THINKING = 0.3
"""Seconds per reply, so that a viewer can follow."""

SECTIONS = {"feat": "Added", "fix": "Fixed", "perf": "Changed", "refactor": "Changed"}
"""Sections of the changelog by type of commit; other types are left out."""

_SUBJECT = re.compile(r"(?P<type>\w+)(\([^)]*\))?(?P<breaking>!)?: (?P<text>.+)")


def script(conversation: Conversation) -> Reply:
    """Return the next reply of the release agent."""
    if "commits_since_tag" not in conversation.tools:
        return default_script(conversation)  # another agent's conversation
    return slow(_next(Release(conversation)), THINKING)


@dataclass(frozen=True)
class Release:
    """The state of a release according to the conversation."""

    conversation: Conversation

    @cached_property
    def results(self) -> dict[str, str]:
        """The last result of each tool."""
        names: dict[str, str] = {}
        results: dict[str, str] = {}
        for message in self.conversation.messages:
            for request in message.get("tool_calls") or ():
                names[request["id"]] = request["function"]["name"]
            if message.get("role") == "tool":
                results[names.get(message["tool_call_id"], "")] = str(message.get("content"))
        return results

    @cached_property
    def commits(self) -> Commits | None:
        """The commits since the last tag; None if the tool returned none."""
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
        matches = [match for commit in self.commits.commits if (match := _SUBJECT.match(commit.subject))]
        if major and any(match["breaking"] for match in matches):
            return f"{major + 1}.0.0"
        if any(match["breaking"] or match["type"] == "feat" for match in matches):
            return f"{major}.{minor + 1}.0"
        return f"{major}.{minor}.{patch + 1}"

    @property
    def news(self) -> dict[str, list[str]]:
        """The entries for the changelog by section, oldest first."""
        assert self.commits is not None
        news: dict[str, list[str]] = {}
        for section in dict.fromkeys(SECTIONS.values()):
            for commit in reversed(self.commits.commits):
                match = _SUBJECT.match(commit.subject)
                if match and SECTIONS.get(match["type"]) == section:
                    news.setdefault(section, []).append(_as_entry(match["text"]))
        return news


def _as_entry(text: str) -> str:
    """Capitalize the text, unless it begins with a name from the code."""
    return text[0].upper() + text[1:] if re.match(r"[a-z]+\b[^(._]", text) else text


@dataclass(frozen=True)
class Phase:
    """One call on the way to a release."""

    tool: str
    success: tuple[str, ...]
    """The possible beginnings of a successful result."""
    ask: Callable[[Release], Reply]


def _next(release: Release) -> Reply:
    if "commits_since_tag" not in release.results:
        first = together(call("commits_since_tag"), call("read_file", path="CHANGELOG.md"))
        return together(first, text="I'll read the commits since the last release, and the changelog.")
    if release.commits is None:
        return say(f"I could not read the commits, so nothing was done. {_quote(release.results['commits_since_tag'])}")
    if not release.commits.commits:
        return say(f"There are no commits since {release.commits.last_tag}: nothing to release.")
    done: list[str] = []
    for phase in PHASES:
        result = release.results.get(phase.tool)
        if result is None:
            return phase.ask(release)
        if not result.startswith((*phase.success, "Done.")):  # "Done." is a person's answer after a check
            return say(_stopped(phase, result, done))
        done.append(phase.tool)
    return say(_summary(release))


def _edit(release: Release) -> Reply:
    assert release.commits is not None
    heading = re.search(r"^## .+$", release.results.get("read_file", ""), re.MULTILINE)
    if heading is None:
        return say(
            "CHANGELOG.md has no section above which to put the next one. Nothing was done. Add a `## ` heading."
        )
    lines = [f"## {release.version} ({release.commits.commits[0].date})", ""]
    for section, entries in release.news.items():
        lines += [f"### {section}", *(f"- {entry}" for entry in entries), ""]
    new = "\n".join([*lines, heading[0]])
    return together(
        call("edit_file", path="CHANGELOG.md", old=heading[0], new=new),
        text=f"{len(release.commits.commits)} commits since {release.commits.last_tag}: the next version is "
        f"{release.version}.",
    )


def _stopped(phase: Phase, result: str, done: list[str]) -> str:
    before = f"Done before that: {', '.join(done)}." if done else "Nothing was done before that."
    return f"The release stopped at {phase.tool}. {_quote(result)}\n{before}"


def _summary(release: Release) -> str:
    news = "\n".join(f"- {section}: {entry}" for section, entries in release.news.items() for entry in entries)
    return f"Released {release.version}. {release.results['tag_release']} {release.results['publish']}\n{news}"


def _quote(result: str) -> str:
    return f"The result was: {json.dumps(result[:300], ensure_ascii=False)}"


PHASES = (
    Phase("edit_file", ("Edited ", "CHANGELOG.md already shows"), _edit),
    Phase("run_tests", ("Tests passed",), lambda release: call("run_tests")),
    Phase("tag_release", ("Tagged ",), lambda release: call("tag_release", version=release.version)),
    Phase("publish", ("Published ",), lambda release: call("publish", version=release.version)),
)
"""The calls of a release, after the first reads."""
