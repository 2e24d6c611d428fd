"""Payloads in history: lean, readable by any client, and sealed if only Holdfast's processes may write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, WorkflowSerializationContext

from holdfast.config.encryption_keys import EncryptionKey
from holdfast.core.base.models import is_unread
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.mac.seals import FleetKeys, SealKeyUnknown, is_unsealed
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.runs import Page, RunInput, View
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.temporal.converter import SEAL, data_converter
from holdfast.core.transcript.transcript import TranscriptRef
from holdfast.encryption.codec import (
    DecryptionFailed,
    EncryptionCodec,
    KeyUnknown,
    PayloadMisplaced,
    PlaintextRefused,
    build_converter,
)

CALL = ToolCall(id="c", name="look", arguments="{}")
VALUES: list[BaseModel] = [
    LLMRequest(transcript=TranscriptRef(length=3, digest="d")),
    LLMReply(message=AssistantMessage(content=(CALL,)), duration_ms=5),
    ToolRequest(call=CALL, key="k", workspace="/w", clip=100),
    ToolOutcome(status="ok", content="x"),
]
KEY, OTHER = bytes(32), bytes(range(32))


def converter_for(
    workflow_id: str, *, seals: FleetKeys | None = None, codec: EncryptionCodec | None = None
) -> DataConverter:
    """Return the converter of a Holdfast process for one workflow's values."""
    converter = build_converter(codec or EncryptionCodec(), FleetKeys({"a": KEY}) if seals is None else seals)
    return converter.with_context(WorkflowSerializationContext(namespace="n", workflow_id=workflow_id))


async def test_defaults_are_left_out_and_come_back_on_reading() -> None:
    """Each model is the same after a round trip, through our converter and through Temporal's own."""
    for value in [*VALUES, RunInput(task="t", sealed=True)]:
        (payload,) = await converter_for("t").encode([value])
        assert b"null" not in payload.data
        assert await converter_for("t").decode([payload], [type(value)]) == [value]
        (read,) = await pydantic_data_converter.decode([payload], [type(value)])
        assert read.model_dump() == value.model_dump()


async def test_other_values_are_encoded_as_before() -> None:
    """Bytes, plain JSON and None have Temporal's own encoding."""
    for value in (b"\x00raw", {"a": [1, None]}, "text", None):
        (payload,) = await data_converter.encode([value])
        assert await data_converter.decode([payload]) == [value]


@pytest.mark.parametrize("value", [*VALUES, Page(b"a\nb"), View({"a": 1})], ids=lambda value: type(value).__name__)
async def test_a_sealed_value_is_valid_only_in_its_context(value: Any) -> None:
    """Another workflow, kind of value or key, altered bytes or a missing seal make it invalid."""
    kind = type(value)
    (payload,) = await converter_for("t").encode([value])
    assert await converter_for("t").decode([payload], [kind]) == [value]
    bare = Payload(metadata={"encoding": payload.metadata["encoding"]}, data=payload.data)
    altered = Payload(metadata=payload.metadata, data=payload.data + b" ")
    for converter, given_ in (
        (converter_for("u"), payload),
        (converter_for("t"), bare),
        (converter_for("t"), altered),
        (converter_for("t", seals=FleetKeys({"a": OTHER})), payload),
        (build_converter(EncryptionCodec(), FleetKeys({"a": KEY})), payload),
    ):
        (opened,) = await converter.decode([given_], [kind])
        assert is_unsealed(opened), "a forged value was accepted"
    other = ToolOutcome if kind is not ToolOutcome else LLMReply
    assert is_unsealed((await converter_for("t").decode([payload], [other]))[0])


@given(st.binary(max_size=60))
async def test_no_forged_seal_is_valid(made_up: bytes) -> None:
    """Any bytes in place of a seal are rejected or name an unknown key."""
    (payload,) = await converter_for("t").encode([VALUES[0]])
    payload.metadata[SEAL] = made_up
    try:
        (opened,) = await converter_for("t").decode([payload], [LLMRequest])
    except SealKeyUnknown:
        return
    assert is_unsealed(opened)


async def test_keys_rotate() -> None:
    """The first key seals and all keys verify; a missing key is an error, so that another worker takes the task."""
    (old,) = await converter_for("t").encode([VALUES[0]])
    both = FleetKeys({"b": OTHER, "a": KEY})
    (new,) = await converter_for("t", seals=both).encode([VALUES[0]])
    assert new.metadata[SEAL].startswith(b"b:")
    assert await converter_for("t", seals=both).decode([old, new], [LLMRequest, LLMRequest]) == [VALUES[0]] * 2
    with pytest.raises(SealKeyUnknown, match=r"'a'.*has only b;"):
        await converter_for("t", seals=FleetKeys({"b": OTHER})).decode([old], [LLMRequest])


async def test_a_starts_own_claim_to_be_sealed_is_ignored() -> None:
    """The decoder sets `sealed`; an undecodable value carries the reason and fails no workflow task."""
    claiming = Payload(metadata={"encoding": b"json/plain"}, data=b'{"task":"t","sealed":true}')
    (start,) = await converter_for("t").decode([claiming], [RunInput])
    assert not start.sealed
    broken = Payload(metadata={"encoding": b"json/plain"}, data=b'{"task":5}')
    (start,) = await converter_for("t").decode([broken], [RunInput])
    assert start.malformed


async def test_encryption_binds_the_context_and_rejects_plain_text() -> None:
    """A ciphertext of another workflow is rejected, and so is a sealed value in plain text unless allowed."""
    key = EncryptionKey("k", OTHER, "")
    codec = EncryptionCodec([key])
    (payload,) = await converter_for("t", codec=codec).encode([VALUES[0]])
    assert await converter_for("t", codec=codec).decode([payload], [LLMRequest]) == [VALUES[0]]
    with pytest.raises(PayloadMisplaced):
        await converter_for("u", codec=codec).decode([payload], [LLMRequest])
    payload.metadata["encryption-place"] = b'["n","u"]'
    with pytest.raises(Exception, match="altered"):
        await converter_for("u", codec=codec).decode([payload], [LLMRequest])
    (plain,) = await converter_for("t").encode([VALUES[0]])
    with pytest.raises(PlaintextRefused):
        await converter_for("t", codec=codec).decode([plain], [LLMRequest])
    assert await converter_for("t", codec=EncryptionCodec([key], plain=True)).decode([plain], [LLMRequest]) == [
        VALUES[0]
    ]


async def test_a_claim_that_cannot_be_decrypted_is_unread_and_other_values_fail() -> None:
    """A signal's argument is replaced by the reason; a value of ours raises it; an altered start is malformed."""
    codec = EncryptionCodec([EncryptionKey("k", OTHER, "")])
    unknown = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"new"}, data=b"\0" * 40)
    altered = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"k"}, data=b"\0" * 40)
    for payload in (unknown, altered):
        (claim,) = await converter_for("t", codec=codec).decode([payload])
        assert is_unread(claim)
        assert "key" in str(claim)
        with pytest.raises(DecryptionFailed):
            await converter_for("t", codec=codec).decode([payload], [LLMRequest])
    (start,) = await converter_for("t", codec=codec).decode([altered], [RunInput])
    assert "altered" in start.malformed
    with pytest.raises(KeyUnknown):  # a worker that has the key takes it
        await converter_for("t", codec=codec).decode([unknown], [RunInput])
