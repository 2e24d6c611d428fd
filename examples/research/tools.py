"""The tools of the research agents: read a library, file a finding, publish a report.

1. No tool accepts a path from the LLM, only the name of a document.
2. Findings and reports are lines of files beside the workspace, which no tool reads by path. Each line has the effect
   key of its call, so a check can find out whether an interrupted call has written it.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from holdfast import Absent, Cannot, Found, ToolContext, Unknown, tool
from holdfast.examples.research.lines import LinesUnreadable, append_line, read_lines
from holdfast.workspace.paths import inside

CONFIRM_LIMIT = 900.0
"""Time limit in seconds of the tools that write."""
WRITE_SECONDS = 1.0
"""Seconds until a line written by a killed worker is certainly readable."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
"""The name of a document, without `.md`."""
Title = Annotated[str, Field(min_length=1, max_length=120)]

_SUMMARY = re.compile(r"^\*\*In short:\*\* (.+)$", re.MULTILINE)
_TOPIC = re.compile(r"^Kind: (.+)$", re.MULTILINE)


class NoSuchDocument(Exception):
    """The library has no document with this name; the message names the tool to call instead."""


class Hit(BaseModel):
    """A document in a search result."""

    name: str
    title: str
    summary: str


class Finding(BaseModel):
    """A researcher's finding."""

    topic: str
    text: str
    sources: list[str]


@tool(effect="read")
def search_documents(query: str, context: ToolContext) -> list[Hit]:
    """Find documents of the library that have every word of the query in their title, kind, topic or summary.

    Args:
        query: A few words, such as "incident report"; an empty one lists all documents.
        context: Filled in by Holdfast.
    """
    words = query.lower().split()
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(context.workspace.glob("*.md"))}
    heads = {name: (_title(text), _match(_TOPIC, text), _match(_SUMMARY, text)) for name, text in texts.items()}
    return [
        Hit(name=name, title=title, summary=summary)
        for name, (title, topic, summary) in heads.items()
        if all(word in f"{title} {topic} {summary}".lower() for word in words)
    ]


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


@tool(effect="read")
def read_document(name: Name, context: ToolContext) -> str:
    """Read one document of the library.

    Args:
        name: As search_documents lists it.
        context: Filled in by Holdfast.
    """
    return _document(context.workspace, name).read_text(encoding="utf-8")


def _document(library: Path, name: str) -> Path:
    file = inside(library, f"{name}.md")
    if not file.is_file():
        raise NoSuchDocument(f"the library has no document {name!r}; search_documents lists those that it has")
    return file


@tool(effect="read")
def search_archive(query: str) -> list[Hit] | Cannot:
    """Search an archive of journals for papers that the library does not have.

    Args:
        query: A few words.
    """
    return Cannot(
        "The archive is behind a paywall, and our subscription ended in December. Continue with the library.",
        scope="everywhere",
    )


def findings_of(library: Path) -> Path:
    """Return the file of the findings about a library: beside it, out of reach of the LLM."""
    return library.parent / f"{library.name}-findings.jsonl"


def reports_of(library: Path) -> Path:
    """Return the file of the published reports."""
    return library.parent / f"{library.name}-reports.jsonl"


@tool(effect="read")
def read_findings(context: ToolContext) -> list[Finding]:
    """Read what the researchers have filed, oldest first.

    Args:
        context: Filled in by Holdfast.
    """
    return [Finding.model_validate(line) for line in read_lines(findings_of(context.workspace))]


def find_finding(context: ToolContext) -> Found | Absent | Unknown:
    """Check whether this call has filed its finding."""
    return _find(findings_of(context.workspace), context, "Filed")


@tool(
    effect="verifiable",
    check=find_finding,
    timeout=CONFIRM_LIMIT,
    settles_within=WRITE_SECONDS,
    not_done_on=(NoSuchDocument,),
)
async def file_finding(topic: Title, text: str, sources: list[Name], context: ToolContext) -> str:
    """File what you have found out, for the reviewer and for later questions.

    Args:
        topic: What it is about, in a few words.
        text: The finding, in a paragraph.
        sources: The names of the documents that say so; at least one.
        context: Filled in by Holdfast.
    """
    for name in sources:
        _document(context.workspace, name)
    line = Finding(topic=topic, text=text, sources=sources).model_dump()
    return await _write(findings_of(context.workspace), context, line, f"Filed {topic!r}.")


def find_report(context: ToolContext) -> Found | Absent | Unknown:
    """Check whether this call has published its report."""
    return _find(reports_of(context.workspace), context, "Published")


@tool(effect="verifiable", check=find_report, timeout=CONFIRM_LIMIT, settles_within=WRITE_SECONDS)
async def publish_report(title: Title, text: str, context: ToolContext) -> str:
    """Publish a report to the whole company. It cannot be withdrawn.

    Args:
        title: Its title.
        text: The report in Markdown, with the name of the source behind each fact.
        context: Filled in by Holdfast.
    """
    line = {"topic": title, "text": text}
    return await _write(reports_of(context.workspace), context, line, f"Published {title!r}.")


async def _write(file: Path, context: ToolContext, line: Mapping[str, object], result: str) -> str:
    seconds = float(os.environ.get("HOLDFAST_EXAMPLE_CONFIRM_SECONDS") or 0.2)
    await asyncio.to_thread(append_line, file, {**line, "key": context.key})
    # The effect has happened, but its result is not recorded: the check covers a kill at this point.
    await asyncio.sleep(seconds)
    return result


def _find(file: Path, context: ToolContext, done: str) -> Found | Absent | Unknown:
    try:
        lines = [line for line in read_lines(file) if line.get("key") == context.key]
    except (OSError, LinesUnreadable) as error:
        return Unknown(f"{file} cannot be read ({error}); look whether it has a line with the key {context.key}")
    return Found(f"{done} {lines[0].get('topic')!r}.") if lines else Absent()


RESEARCH_TOOLS = (search_documents, read_document, search_archive, read_findings, file_finding, publish_report)
"""All tools of the example."""
