"""What is written into history, and that anybody can read it."""

from pydantic import BaseModel
from temporalio.contrib.pydantic import pydantic_data_converter

from holdfast.contracts import LLMReply, LLMRequest, RunInput, ToolOutcome, ToolRequest
from holdfast.messages import AssistantMessage, ToolCall
from holdfast.payloads import data_converter
from holdfast.transcript import TranscriptRef

CALL = ToolCall(id="c", name="look", arguments="{}")
VALUES: list[BaseModel] = [
    RunInput(task="t"),
    LLMRequest(transcript=TranscriptRef(length=3, digest="d")),
    LLMReply(message=AssistantMessage(tool_calls=(CALL,)), duration_ms=5),
    ToolRequest(call=CALL, key="k", workspace="/w", clip=100),
    ToolOutcome(status="ok", content="x"),
]


async def test_defaults_are_left_out_and_come_back_on_reading() -> None:
    """Each model is the same after a round trip, through our converter and through Temporal's own."""
    for value in VALUES:
        (payload,) = await data_converter.encode([value])
        assert b"null" not in payload.data
        for converter in (data_converter, pydantic_data_converter):
            assert await converter.decode([payload], [type(value)]) == [value]


async def test_what_is_no_model_is_encoded_as_ever() -> None:
    """Bytes, plain JSON and nothing at all."""
    for value in (b"\x00raw", {"a": [1, None]}, "text", None):
        (payload,) = await data_converter.encode([value])
        assert await data_converter.decode([payload]) == [value]
