"""What a hostile MCP server may ask for, and what its tasks may say: each has a clear outcome, and a size."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from pydantic import ValidationError

from holdfast import MCP
from holdfast.core.authority.previews import PREVIEW_CHARS, preview_rows
from holdfast.core.authority.server_questions import accept, question_preview
from holdfast.core.tools.foreign_waits import Asks, QuestionPart, Resumed, ServerQuestion, TaskEnded, Working
from holdfast.mcp.limits import QuestionRejected, ServerError
from holdfast.mcp.questions import read_requests
from holdfast.mcp.tasks import LONGEST_INTERVAL, SHORTEST_INTERVAL, CreatedTask, TaskState
from tests.support import mcp_tools
from tests.support.mcp_tools import CONTEXT, Caller, caller, command


def desk(folder: Path) -> MCP:
    """Return a server that asks."""
    return MCP("desk", command=command("asking"), env={"ASKING_FOLDER": str(folder)}, timeout=60, confined=False)


async def follow(call: Caller, monkeypatch: pytest.MonkeyPatch, task: str, **resumed: Any) -> Any:
    """Follow a task, as a later activity would."""
    context = replace(CONTEXT, pends=True, resumed=Resumed({}, task=task, polls=True, **resumed))
    monkeypatch.setattr(mcp_tools, "CONTEXT", context)
    return await call("desk_build", what=task)


async def test_a_server_asks_for_nothing_but_forms_addresses_and_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else, and anything too large, ends the call as not done. So does any question in an older run."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True, workspace=tmp_path))
    async with caller(desk(tmp_path)) as call:
        for what, why in (
            ("sampling", "sampling, which is refused"),
            ("script", "no plain address"),
            ("lookalike", "no plain address"),
            ("long", "characters"),
            ("many", "more than 10 questions"),
            ("deep", "too large"),
            ("forever", "times in a row"),
            ("state", "its state has more than"),
        ):
            with pytest.raises(QuestionRejected, match=why):
                await call("desk_ask", what=what)
        asked = await call("desk_ask", what="sneaky")
        assert isinstance(asked, Asks)
        rows = preview_rows(question_preview(asked.question))
        assert not any(character in "".join(rows) for character in "\x1b\u202e\r\n")
        assert await call("desk_where") == tmp_path.as_uri()
        monkeypatch.setattr(mcp_tools, "CONTEXT", CONTEXT)
        with pytest.raises(QuestionRejected, match="nobody answers"):
            await call("desk_book", table="T1")
    assert not (tmp_path / "book.txt").exists()


async def test_a_server_that_forgets_its_question_gets_an_answer_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called from the beginning; people's answer goes with the same question alone, and only once more."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    async with caller(desk(tmp_path)) as call:
        asked = await call("desk_book", table="T1")
        responses = accept(asked.question, '{"name": "Ann"}')
        assert isinstance(responses, dict)
        resumed = replace(CONTEXT, pends=True, resumed=Resumed(responses, asked.state))
        monkeypatch.setattr(mcp_tools, "CONTEXT", resumed)
        (tmp_path / "forgets").write_text("xx")
        with pytest.raises(ServerError, match="expired"):
            await call("desk_book", table="T1")
        (tmp_path / "forgets").write_text("x")
        (tmp_path / "more").write_text(" And your password?")
        other = await call("desk_book", table="T1")
        assert isinstance(other, Asks)
        assert "password" in other.question.parts[0].message
        assert not (tmp_path / "book.txt").exists()
        (tmp_path / "more").unlink()
        (tmp_path / "forgets").write_text("x")
        assert await call("desk_book", table="T1") == "booked T1"
    assert len((tmp_path / "book.txt").read_text().splitlines()) == 1


async def test_a_task_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state of a task has its outcome; one with an effect that ended without a result is in doubt."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    async with caller(desk(tmp_path)) as call:
        began = await call("desk_build", what="house")
        assert isinstance(began, Working)
        assert (began.task.server, began.task.id, began.task.interval) == ("desk", "house", 1.0)
        file = tmp_path / "house.task"
        for state, reason in (
            ("failed", "the oven is cold"),
            ("cancelled", "was cancelled"),
            ("broken", "no space"),
            ("rubbish", "not what the protocol prescribes"),
        ):
            file.write_text(state)
            ended = await follow(call, monkeypatch, "house")
            assert isinstance(ended, TaskEnded), state
            assert ended.unknown
            assert reason in ended.reason
        file.write_text("input_required")
        asked = await follow(call, monkeypatch, "house")
        assert isinstance(asked, Asks)
        assert asked.question.task == "house"
        again = await follow(call, monkeypatch, "house", answered=("who",))
        assert isinstance(again, Working), "people are asked each question once"
        file.write_text("completed")
        assert await follow(call, monkeypatch, "house") == "built"
        file.unlink()
        lost = await follow(call, monkeypatch, "house")
        assert isinstance(lost, TaskEnded)
        assert "no longer knows" in lost.reason


def task(**fields: Any) -> dict[str, Any]:
    """Return the state of a task as a server sends it."""
    common = {"createdAt": "x", "lastUpdatedAt": "x", "ttlMs": None}
    return {"resultType": "task", "taskId": "t", "status": "working", **common, **fields}


@pytest.mark.parametrize("milliseconds", [0, -5, 1e308, 1])
def test_no_task_is_polled_too_often_or_too_rarely(milliseconds: float) -> None:
    """The interval that a server asks for is bounded on both sides."""
    state = TaskState.model_validate(task(pollIntervalMs=milliseconds))
    assert SHORTEST_INTERVAL <= state.as_task("s").interval <= LONGEST_INTERVAL


def test_an_interval_that_is_no_number_is_replaced() -> None:
    """NaN compares with nothing, so no bound would hold it."""
    interval = TaskState.model_validate(task(pollIntervalMs=math.nan)).as_task("s").interval
    assert SHORTEST_INTERVAL <= interval <= LONGEST_INTERVAL


@pytest.mark.parametrize("fields", [{"taskId": "t" * 100_000}, {"taskId": ""}, {"status": "done"}, {"taskId": 1}])
def test_a_task_that_the_protocol_does_not_have_is_an_error(fields: dict[str, Any]) -> None:
    """Its id enters the log, so it is bounded."""
    with pytest.raises(ValidationError):
        CreatedTask.model_validate(task(**fields))


def test_a_question_is_complete_on_every_screen() -> None:
    """Questions that together exceed what a request shows are rejected, never cut."""
    asked = {str(n): types.ElicitRequest(params=form("m" * 1_900)) for n in range(5)}
    with pytest.raises(QuestionRejected, match="in all"):
        read_requests(asked).question("shop")


def form(message: str, **properties: Any) -> types.ElicitRequestFormParams:
    """Return a question with a form."""
    return types.ElicitRequestFormParams(message=message, requested_schema={"type": "object", "properties": properties})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": 1}, "required": 5},
        {"type": "object", "properties": {"a": {"enum": 3, "oneOf": 7, "items": {"anyOf": "x"}, "title": 9}}},
        {"type": "object", "properties": {"a": {"pattern": "(a+)+$", "type": "string"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://evil.example/schema"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
    ],
)
def test_a_form_that_is_no_schema_stops_nobody(schema: dict[str, Any]) -> None:
    """It is shown and checked without an exception, at a bounded cost, and fetches nothing."""
    part = QuestionPart(key="k", message="m", form=schema)
    question = ServerQuestion(server="s", parts=(part,))
    assert len(question_preview(question).text) < PREVIEW_CHARS
    for answer in ("a" * 5_000 + "!", json.dumps({"a": "a" * 5_000 + "!"}), "true", "[]", "null"):
        assert isinstance(accept(question, answer), dict | str)
