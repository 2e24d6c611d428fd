"""The scripted LLM of the research agents: a pure function of the conversation, so it survives any kill.

The researchers and the reviewer answer with summaries from the documents, and the lead with their answers. If a call is
rejected or fails, they continue without it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from holdfast.endpoints.script import JSON
from holdfast.examples.research.documents import EVENT
from holdfast.testing import Conversation, Reply, call, default_script, say, slow, together

THINKING = 0.3
"""Seconds per reply, so that a viewer can follow."""

INCIDENTS = "Which incidents had our queues, and what caused them? Search for: incident"
LOAD = "How many jobs a second do we expect, and how many can each option take? Search for: load"
COST = "What do PostgreSQL and the broker cost us, in money and in work? Search for: cost"
PRODUCTS = "How do brokers differ from one another? Search for: broker"
SOAK = "What does the report of the soak test say about vacuum? Search for: soak"
REVIEW = "Compare all findings with their sources."

ENDED = "The budget of this run has ended"
"""The beginning of Holdfast's message before the last reply within a budget."""

_SUMMARY = re.compile(r"^\*\*In short:\*\* (.+)$", re.MULTILINE)


def script(conversation: Conversation) -> Reply:
    """Return the next reply of the agent whose tools the conversation offers."""
    work = Work(conversation)
    if ENDED in conversation.last_user_message:
        return say(f"The budget has ended. What I have so far:\n{work.findings or work.summaries or 'nothing yet'}")
    for tool, reply in (("publish_report", _lead), ("file_finding", _researcher), ("read_findings", _reviewer)):
        if tool in conversation.tools:
            return slow(reply(work), THINKING)
    return default_script(conversation)  # another agent's conversation


@dataclass(frozen=True)
class Work:
    """An agent's work so far, read from its conversation."""

    conversation: Conversation

    @cached_property
    def calls(self) -> list[tuple[str, str, str]]:
        """Each call with a result: tool, arguments, result."""
        calls = {each["id"]: each["function"] for message in self._messages for each in message.get("tool_calls") or ()}
        return [
            (calls[message["tool_call_id"]]["name"], calls[message["tool_call_id"]]["arguments"], _text(message))
            for message in self._messages
            if message.get("role") == "tool"
        ]

    @property
    def _messages(self) -> list[JSON]:
        return self.conversation.messages

    def results(self, tool: str, having: str = "") -> list[str]:
        """Return the results of a tool's calls whose arguments contain a text."""
        return [result for name, arguments, result in self.calls if name == tool and having in arguments]

    @cached_property
    def task(self) -> str:
        """The first message from a person."""
        return next((_text(message) for message in self._messages if message.get("role") == "user"), "")

    @property
    def narrowed(self) -> bool:
        """True if a person has narrowed the task."""
        users = [_text(message) for message in self._messages if message.get("role") == "user"]
        return any("narrows the task" in text for text in users[1:])

    @property
    def findings(self) -> str:
        """The researchers' answers, without Holdfast's introductions."""
        answers = [result for tool, _, result in self.calls if tool in ("run_agent", "agent_result")]
        return "\n".join(_answer(text) for text in answers if "is its answer" in text and "Agent researcher" in text)

    @cached_property
    def summaries(self) -> str:
        """The summaries of the documents read so far, each with its document's name."""
        read = [(json.loads(args)["name"], text) for tool, args, text in self.calls if tool == "read_document"]
        return "\n".join(f"- {match[1]} [{name}]" for name, text in read if (match := _SUMMARY.search(text)))

    @property
    def review(self) -> str:
        """The reviewer's answer; empty if there is none yet."""
        return next((_answer(text) for text in self.results("run_agent", REVIEW) if "is its answer" in text), "")


def _text(message: JSON) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


def _answer(result: str) -> str:
    return result.partition("\n")[2].strip()


# The lead.


def _lead(work: Work) -> Reply:
    if not work.results("search_documents"):
        return together(call("search_documents", query=""), text="I'll see what the library has.")
    if not work.results("run_agent"):
        return together(
            _run(INCIDENTS),
            _run(LOAD),
            _run(COST, background=True),
            text="Three parts: incidents and load at once, cost in the background. Then the brokers, one by one.",
        )
    if not work.narrowed and not work.results("run_agent", "brokers differ"):
        return together(_run(PRODUCTS), text="Now the brokers, one by one.")
    if not work.results("wait_for_event"):
        text = "The load test says little about vacuum; the report of the soak test is still to come."
        return together(call("wait_for_event", name=EVENT, match={"topic": "queue"}, until="3d"), text=text)
    if not work.results("run_agent", SOAK):
        return together(_run(SOAK), *_awaited(work), text="An event is a claim: I have the report itself read.")
    if not work.results("sleep_until"):
        return together(call("sleep_until", until="14h"), text="I have all answers. I ask for approval in the morning.")
    if not work.results("run_agent", REVIEW):
        return together(call("run_agent", agent="reviewer", task=REVIEW), text="Before that, a second pair of eyes.")
    if not work.results("publish_report"):
        return call("publish_report", title="Keep the job queue in PostgreSQL", text=_report(work))
    return say(_closing(work))


def _run(task: str, **more: bool) -> Reply:
    return call("run_agent", agent="researcher", task=task, **more)


def _awaited(work: Work) -> Iterator[Reply]:
    """Yield the calls that wait for sub-agents in the background."""
    for result in work.results("run_agent"):
        if match := re.search(r"in the background, in thread (\S+)\. ", result):
            yield call("agent_result", thread=match[1])


def _report(work: Work) -> str:
    advice = "Keep the job queue in PostgreSQL until the end of 2027; look again at 1,000 jobs a second."
    return f"{advice}\n\n{work.findings}\n\nReview: {work.review or 'none.'}"


def _closing(work: Work) -> str:
    published = work.results("publish_report")[-1]
    left_out = " The brokers are not compared, as asked." if work.narrowed else ""
    return f"Keep the job queue in PostgreSQL until the end of 2027. {published}{left_out}"


# Its sub-agents.


def _researcher(work: Work) -> Reply:
    hits = work.results("search_documents")
    if not hits:
        return call("search_documents", query=work.task.rpartition("Search for: ")[2])
    names = _names(hits[0])
    if not names:
        return say("The library has nothing about that.")
    if not work.results("read_document"):
        more = [call("search_archive", query="vacuum of queue tables")] if work.task == LOAD else []
        return together(*(call("read_document", name=name) for name in names), *more)
    if not work.results("file_finding"):
        return call("file_finding", topic=work.task.partition("?")[0], text=work.summaries, sources=names)
    return say("\n".join([work.summaries, *_refused(work)]))


def _reviewer(work: Work) -> Reply:
    filed = work.results("read_findings")
    if not filed:
        return together(call("read_findings"), call("search_archive", query="queues in PostgreSQL"))
    findings = json.loads(filed[0])
    if not work.results("read_document"):
        names = dict.fromkeys(name for finding in findings for name in finding["sources"])
        return together(*(call("read_document", name=name) for name in names))
    facts = [fact for finding in findings for fact in finding["text"].splitlines()]
    right = [fact for fact in facts if fact in work.summaries]
    verdict = f"{len(right)} of {len(facts)} facts stand in their sources."
    return say("\n".join([verdict, *(fact for fact in facts if fact not in right), *_refused(work)]))


def _names(result: str) -> list[str]:
    return re.findall(r'"name": ?"([^"]+)"', result)


def _refused(work: Work) -> list[str]:
    return ["- Without the archive, which is behind a paywall." for _ in work.results("search_archive")]
