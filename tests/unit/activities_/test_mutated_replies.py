"""Replies broken by a server, a proxy or an LLM never end a run early and never run a truncated call.

The test damages the structure of replies from the three APIs. An independent oracle judges the outcome: it reads only
the JSON, for the words with which each API documents the end of a reply.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.core.authority.policy import Policy, allow
from holdfast.core.base.text import invisible_removed
from holdfast.core.log.events import AgentEvent, MessageAwaited, RunFinished, ToolCallRequested, VerdictGiven
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.decide.replies import on_reply
from holdfast.core.run.state.features import CUT_OFF_CALLS
from holdfast.core.tools.decorator import tool
from holdfast.core.tools.effects import Effect
from tests.support.examples import examples
from tests.support.neutral import APIS, Api
from tests.support.runs import NOW, agent_spec, loaded_thread, tool_spec
from tests.support.values import Wire

REPLIES, DAMAGES = examples(6, 670), 50
"""Damaged replies for each reply of each API: 900, or 100,500 in the thorough profile."""

NAMES = ("look", "wipe", "functions.look", "b", "search")
WORDS: list[Any] = [
    *("stop", "end_turn", "completed", "tool_calls", "tool_use", "function_call", "STOP", "", None),
    *("length", "max_tokens", "MAX_TOKENS", "incomplete", "truncated", "model_length", "SAFETY", "content_filter"),
    *("RECITATION", "MALFORMED_FUNCTION_CALL", "error", "pause_turn", "who knows", 0, [], {}),
]
VALUES: list[Any] = [None, "", " ", "\u200b", 0, -1, 1e300, True, [], {}, [None], [[]], {"type": "text"}, "{"]
CALL = '{"name": "look", "arguments": {}}'
TEXTS = ("Done.", " \n", "\u200b", "<think>hm</think>", f"<tool_call>{CALL}</tool_call>", CALL)
ARGUMENTS: list[Any] = [
    *("", "{}", "null", " ", '{"path": "/"', '{"path": "/"}', "{'path': '/',}", '{"path": "', "[]"),
    *(None, {}, 5),
]

ENDS = {"stop", "end_turn", "stop_sequence", "completed", "tool_calls", "tool_use", "function_call"}
"""Words with which an API says that the LLM itself ended its reply; a missing word counts as one, too."""


@tool(effect="unsafe")
def wipe(path: str = ".", recursive: bool = True) -> str:
    """Delete a folder."""
    return path


TOOLS = {"wipe": wipe}
SPEC = agent_spec(tools=(tool_spec("look"), wipe.spec, tool_spec("b", Effect.UNSAFE)), policy=Policy(rules=(allow(),)))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, inner in items for each in ((*path, key), *places(inner, (*path, key)))]


def damage(rng: random.Random, reply: Wire) -> Wire:
    """Return a reply with some values dropped, altered, duplicated or given another type."""
    for _ in range(rng.randint(1, 3)):
        paths = places(reply)
        if not paths:
            return reply
        *path, last = rng.choice(paths)
        parent: Any = reply
        for key in path:
            parent = parent[key]
        match rng.choice(["drop", "alter", "double", "wrap", "word", "cut"]):
            case "drop":
                del parent[last]
            case "double" if isinstance(parent, list):
                parent.insert(last, json.loads(json.dumps(parent[last])))
            case "wrap":
                parent[last] = rng.choice([[parent[last]], {"value": parent[last]}])
            case "cut" if isinstance(parent[last], str):
                parent[last] = parent[last][: len(parent[last]) // 2]
            case "word":
                _set_finish_reason(reply, json.loads(json.dumps(rng.choice(WORDS))))
            case _:
                parent[last] = json.loads(json.dumps(rng.choice(VALUES)))
    return reply


def _set_finish_reason(reply: Wire, word: Any) -> None:
    """Set the finish reason, if the API has a field for it."""
    if "choices" in reply:
        for choice in reply["choices"] if isinstance(reply["choices"], list) else ():
            if isinstance(choice, dict):
                choice["finish_reason"] = word
    elif "output" in reply:
        reply["status"] = word
    else:
        reply["stop_reason"] = word


def fill(rng: random.Random, reply: Any) -> Any:
    """Return a reply whose names, arguments and texts affect what a run does."""
    if isinstance(reply, list):
        return [fill(rng, each) for each in reply]
    if not isinstance(reply, dict):
        return reply
    reply = {key: fill(rng, each) for key, each in reply.items()}
    if "name" in reply:
        reply["name"] = rng.choice(NAMES)
    if "arguments" in reply:
        reply["arguments"] = json.loads(json.dumps(rng.choice(ARGUMENTS)))
    if isinstance(reply.get("text"), str) and rng.random() < 0.5:
        reply["text"] = rng.choice(TEXTS)
    if isinstance(reply.get("content"), str) and rng.random() < 0.5:
        reply["content"] = rng.choice(TEXTS)
    return reply


def finish_reason_of(reply: Wire) -> Any:
    """Return the finish reason in a reply's JSON."""
    if "choices" in reply:
        choice = reply["choices"][0] if isinstance(reply["choices"], list) and reply["choices"] else None
        return choice.get("finish_reason") if isinstance(choice, dict) else None
    if "output" in reply:
        details = reply.get("incomplete_details")
        return (details.get("reason") or "incomplete") if isinstance(details, dict) and details else reply.get("status")
    return reply.get("stop_reason")


def ends_reply(word: Any) -> bool:
    """Whether the word says that the LLM itself ended its reply."""
    return word is None or (isinstance(word, str) and (not word.strip() or word.strip().casefold() in ENDS))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.adapter.issuer)
def test_no_damaged_reply_ends_a_run_or_runs_a_truncated_call(api: Api) -> None:
    """The adapter raises nothing, no run completes on a reply that neither ended nor shows text, and no truncated last
    call runs.
    """
    states = [loaded_thread(SPEC, features=features).state for features in (0, CUT_OFF_CALLS)]

    @given(api.replies, st.integers())
    @settings(max_examples=REPLIES, phases=[Phase.generate])  # shrinking fifty mutations takes minutes
    def check(whole: Wire, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(DAMAGES):
            reply = damage(rng, fill(rng, whole))
            try:
                read = read_reply(json.dumps(reply).encode(), adapter=api.adapter, spec=SPEC, tools=TOOLS, step_id="s")
            except NotAReply:
                continue
            recorded = LLMReply.model_validate_json(to_json(read))
            for state in states:
                judge(reply, recorded, on_reply(state, recorded, shown=1, at=NOW))

    check()


def judge(reply: Wire, recorded: LLMReply, events: Sequence[AgentEvent]) -> None:
    """Compare the outcome of a reply with how its JSON says that it ended."""
    ran = {event.number for event in events if isinstance(event, VerdictGiven)}
    requested = [event.number for event in events if isinstance(event, ToolCallRequested)]
    ended, announces = (
        ends_reply(finish_reason_of(reply)),
        finish_reason_of(reply) in ("tool_calls", "tool_use", "function_call"),
    )
    assert ended or not requested or requested[-1] not in ran
    if any(isinstance(event, RunFinished | MessageAwaited) for event in events):
        assert recorded.message is not None
        assert (ended and not announces) or "refusal" in json.dumps(reply)
        media = any(kind in json.dumps(reply) for kind in ("image", "audio", "file", "document"))
        assert invisible_removed(recorded.message.text).strip() or media
        assert "<think>" not in recorded.message.text
        assert recorded.message.text.strip() not in TEXTS[3:]
