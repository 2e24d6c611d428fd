"""No event makes a run fail because of a number or a character that canonical JSON cannot write."""

import json
import math
from typing import Any

import pytest

from holdfast.core.base.canonical import MAX_INTEGER
from holdfast.core.llm.messages import Usage
from holdfast.core.log.event_log import EventLog, event_json, event_line, first_altered
from holdfast.core.log.events import AgentEvent, DecisionReceived, LLMReplied, UserMessageReceived
from holdfast.core.log.stored_lines import read_lines
from tests.support.runs import NOW, through_json


def reply(**fields: Any) -> LLMReplied:
    """Return a reply as a provider may send it."""
    event_fields: dict[str, Any] = {"message": None, "transcript_length": 0, "usage": Usage(), "finish_reason": "stop"}
    return LLMReplied(**{**event_fields, "llm": "m", **fields})


def decision(**arguments: Any) -> DecisionReceived:
    """Return a decision with edited arguments."""
    fields: dict[str, Any] = {"request": "1", "decision": "approve", "by": "alice", "reason": "", "outcome": "accepted"}
    return DecisionReceived(**fields, arguments=arguments)


EVENTS = [
    pytest.param(reply(usage=Usage(prompt_tokens=2**70)), f'"prompt_tokens":{MAX_INTEGER}', id="token count"),
    pytest.param(reply(llm="m\ud800"), '"llm":"m?"', id="surrogate"),
    pytest.param(
        decision(n=[2**70, -(10**400), math.inf, math.nan, 5.0, 1e20]),
        f'"n":[{MAX_INTEGER},{-MAX_INTEGER},null,null,5,100000000000000000000]',
        id="numbers",
    ),
    pytest.param(
        decision(**{"\U0001f600": 1, "\ue000": 2, "a": "\udfff"}), '"a":"?","\U0001f600":1,"\ue000":2', id="keys"
    ),
    pytest.param(UserMessageReceived(content="x\ud800", by="x\udfff"), '"by":"x?","content":"x?"', id="task"),
]


@pytest.mark.parametrize(("event", "written"), EVENTS)
def test_an_event_is_recorded_as_the_nearest_that_can_be_written(event: AgentEvent, written: str) -> None:
    """The log has the nearest event in canonical JSON, the run continues with it, and every reader gets the same
    digest.
    """
    log = EventLog()
    stamped = log.append(event, at=NOW)
    assert written in log.page(0).decode()
    assert [stamped] == log.events == read_lines("t", 0, [log.page(0)])
    assert event_line(stamped) == log.page(0)
    assert first_altered(log.events) is None
    again = EventLog()
    again.restore(through_json(stamped))
    assert again.page(0) == log.page(0), "also from a snapshot, in which 5.0 is written as 5.0"


def test_a_float_has_one_digest_wherever_it_comes_from() -> None:
    """5.0 in Python, 5.0 in Temporal's history and 5 in the log are the same number of the same event."""
    one, other = EventLog(), EventLog()
    first = one.append(decision(n=5.0), at=NOW)
    second = other.append(through_json(decision(n=5)), at=NOW)
    assert first == second
    assert one.head == other.head
    assert json.dumps(event_json(first)) == json.dumps(event_json(second))
