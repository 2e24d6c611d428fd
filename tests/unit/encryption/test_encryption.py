"""Payloads for Temporal are encrypted, decrypted unchanged, or rejected with a reason."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DefaultPayloadConverter

from holdfast.config.encryption_keys import EncryptionKey, parse_keys
from holdfast.config.settings import Settings
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.encryption.codec import (
    DecryptionFailed,
    EncryptionCodec,
    KeyUnknown,
    PayloadAltered,
    build_converter,
)
from holdfast.encryption.codec_server import BodyInvalid, codec_router, decode_body, encode_body
from holdfast.errors import SettingsError

ORIGIN = "https://temporal.example.com"


def key(name: str) -> EncryptionKey:
    """Return a new key."""
    secret = hashlib.sha256(name.encode()).digest()  # the same in each process that collects the tests
    return EncryptionKey(name, secret, base64.b64encode(secret).decode())


OLD, NEW = key("old"), key("new")
CODEC = EncryptionCodec([OLD])
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"the task"')

PAYLOADS = st.builds(
    Payload, metadata=st.dictionaries(st.text(max_size=20), st.binary(max_size=20), max_size=3), data=st.binary()
).filter(lambda payload: payload.metadata.get("encoding") != b"binary/encrypted")


@given(payloads=st.lists(PAYLOADS, max_size=4))
async def test_encryption_round_trips(payloads: list[Payload]) -> None:
    """Any payload, with its metadata, round-trips; ciphertexts reveal none of it and never repeat."""
    sealed = await CODEC.encode(payloads)
    assert await CODEC.decode(sealed) == payloads
    for plain, one in zip(payloads, sealed, strict=True):
        assert dict(one.metadata) == {"encoding": b"binary/encrypted", "encryption-key-id": b"old"}
        assert len(plain.data) < 8 or plain.data not in one.data
    assert [one.data for one in sealed] != [one.data for one in await CODEC.encode(payloads)] or not payloads


async def test_a_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    """To rotate, a new key is put in front; with only the old one, the error names the missing key."""
    rotated = EncryptionCodec([NEW, OLD])
    before, after = (await CODEC.encode([PLAIN]))[0], (await rotated.encode([PLAIN]))[0]
    assert after.metadata["encryption-key-id"] == b"new"
    assert await rotated.decode([before, after]) == [PLAIN, PLAIN]
    with pytest.raises(KeyUnknown, match=r"the key 'new', but HOLDFAST_ENCRYPTION_KEYS has only old here"):
        await CODEC.decode([after])


async def test_without_a_key_nothing_is_encrypted_or_decrypted() -> None:
    """The message names the key and the variable."""
    keyless = EncryptionCodec()
    assert await keyless.encode([PLAIN]) == [PLAIN]
    assert await keyless.decode([PLAIN]) == [PLAIN]
    with pytest.raises(KeyUnknown, match="the key 'old', but HOLDFAST_ENCRYPTION_KEYS is not set here"):
        await keyless.decode(await CODEC.encode([PLAIN]))


async def test_plain_payloads_are_read_unchanged() -> None:
    """Runs that began before encryption was enabled continue."""
    assert await CODEC.decode([PLAIN, *(await CODEC.encode([PLAIN]))]) == [PLAIN, PLAIN]


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
async def test_an_altered_payload_is_rejected(place: int, bit: int) -> None:
    """A changed bit of nonce, text or tag is detected."""
    (sealed,) = await CODEC.encode([PLAIN])
    altered = bytearray(sealed.data)
    altered[place % len(altered)] ^= 1 << bit
    sealed.data = bytes(altered)
    with pytest.raises(PayloadAltered, match=r"altered, or .* with the id 'old'"):
        await CODEC.decode([sealed])


@given(length=st.integers(0, 40))
async def test_a_truncated_payload_is_rejected(length: int) -> None:
    """A payload of any shorter length, down to zero bytes, is rejected."""
    (sealed,) = await CODEC.encode([PLAIN])
    sealed.data = sealed.data[:length]
    with pytest.raises(PayloadAltered):
        await CODEC.decode([sealed])


async def test_a_payload_is_bound_to_its_keys_id() -> None:
    """A payload does not decrypt with the same key under another id."""
    (sealed,) = await CODEC.encode([PLAIN])
    sealed.metadata["encryption-key-id"] = b"renamed"
    renamed = EncryptionKey("renamed", OLD.secret, OLD.text)
    with pytest.raises(PayloadAltered):
        await EncryptionCodec([renamed]).decode([sealed])


async def test_failures_are_encrypted_too() -> None:
    """Messages, stack traces and causes are encrypted and restored in the same places."""
    converter = build_converter(CODEC, FleetKeys())
    failure = Failure()
    try:
        raise ValueError("the task") from KeyError("its cause")
    except ValueError as error:
        await converter.encode_failure(error, failure)
    event = HistoryEvent()
    event.activity_task_failed_event_attributes.failure.CopyFrom(failure)
    assert b"the task" not in event.SerializeToString()
    assert b"its cause" not in event.SerializeToString()
    await decrypt_in_place(event, CODEC)
    opened = event.activity_task_failed_event_attributes.failure
    assert (opened.message, "its cause" in opened.cause.message) == ("the task", True)
    assert "test_encryption.py" in opened.stack_trace
    assert not opened.HasField("encoded_attributes")


async def test_all_payloads_of_a_message_are_decrypted() -> None:
    """Lists, maps and single fields are decrypted; unencrypted ones, such as search attributes, stay unchanged."""
    (sealed,) = await CODEC.encode([PLAIN])
    event = HistoryEvent()
    begin = event.workflow_execution_started_event_attributes
    begin.input.payloads.extend([sealed, PLAIN])
    begin.memo.fields["note"].CopyFrom(sealed)
    begin.search_attributes.indexed_fields["HoldfastStep"].CopyFrom(PLAIN)
    event.user_metadata.summary.CopyFrom(sealed)
    with pytest.raises(DecryptionFailed):
        await decrypt_in_place(event, EncryptionCodec())
    await decrypt_in_place(event, CODEC)
    assert list(begin.input.payloads) == [PLAIN, PLAIN]
    assert begin.memo.fields["note"] == event.user_metadata.summary == PLAIN
    assert begin.search_attributes.indexed_fields["HoldfastStep"] == PLAIN


@pytest.mark.parametrize("variant", ["standard", "urlsafe", "unpadded"])
def test_keys_are_read_in_their_order(variant: str) -> None:
    """Keys may be in the form of `openssl rand -base64 32` or URL-safe; blanks and line ends are ignored."""
    texts = [base64.b64encode(each.secret).decode() for each in (NEW, OLD)]
    if variant != "standard":
        texts = [base64.urlsafe_b64encode(each.secret).decode() for each in (NEW, OLD)]
    if variant == "unpadded":
        texts = [text.rstrip("=") for text in texts]
    keys = parse_keys(f" new:{texts[0]} ,\n old:{texts[1]}")
    assert [(each.id, each.secret) for each in keys] == [("new", NEW.secret), ("old", OLD.secret)]
    assert NEW.text not in repr(keys)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (OLD.text, "key 1 has no id"),
        (f"old:{OLD.text},{NEW.text}", "key 2 has no id"),
        (f"o d:{OLD.text}", "key 1 has no id"),
        (f"old:{OLD.text},", "key 2 has no id"),
        (f"old:?{OLD.text[1:]}", "key 1 ('old') is not base64"),
        ("old:aHVudGVyMg==", "key 1 ('old') has 7 bytes instead of 32"),
        (f"old:{OLD.text},old:{NEW.text}", "two keys have the id 'old'"),
    ],
)
def test_invalid_keys_are_named_and_not_shown(setting: str, words: str) -> None:
    """The error has the variable, the position and the fix, but never the value."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"HOLDFAST_ENCRYPTION_KEYS": setting}, root=Path("/srv"))
    message = str(caught.value)
    assert "HOLDFAST_ENCRYPTION_KEYS is not valid" in message
    assert words in message
    for secret in (OLD.text[1:20], NEW.text[1:20], "aHVudGVyMg"):
        assert secret not in message
    assert caught.value.__cause__ is None


def test_settings_hide_their_keys() -> None:
    """Neither `repr` nor the JSON of the settings contains a key."""
    settings = Settings.from_env({"HOLDFAST_ENCRYPTION_KEYS": f"old:{OLD.text}"}, root=Path("/srv"))
    assert OLD.text not in repr(settings) + settings.model_dump_json()
    assert EncryptionCodec.of(settings.encryption_keys).encrypts
    assert not EncryptionCodec.of(None).encrypts


def body(*payloads: Payload) -> bytes:
    """Return a request's body as the Web UI writes it."""
    encode = base64.b64encode
    return json.dumps(
        {
            "payloads": [
                {
                    "metadata": {name: encode(value).decode() for name, value in payload.metadata.items()},
                    "data": encode(payload.data).decode(),
                }
                for payload in payloads
            ]
        }
    ).encode()


async def test_the_codec_servers_bodies_are_those_of_the_protocol() -> None:
    """A body keeps its meaning through encoding and decoding; unencrypted payloads pass."""
    sealed = await encode_body(CODEC, body(PLAIN))
    assert b"dGhlIHRhc2s" not in sealed
    assert json.loads(await decode_body(CODEC, sealed)) == json.loads(body(PLAIN))
    assert json.loads(await decode_body(CODEC, body(PLAIN, PLAIN))) == json.loads(body(PLAIN, PLAIN))
    (value,) = DefaultPayloadConverter().from_payloads([PLAIN])
    assert value == "the task"


@pytest.mark.parametrize("junk", [b"", b"[]", b"\xff", b'{"payloads": 1}', b'{"payloads": [{"data": 1}]}', b"[" * 5000])
async def test_an_invalid_body_is_rejected(junk: bytes) -> None:
    """Any other body is rejected."""
    with pytest.raises(BodyInvalid, match="not JSON of the form"):
        await decode_body(CODEC, junk)


def allowed_in(request: Request) -> None:
    """Admit requests with one bearer token.

    Raises:
        HTTPException: The token is missing or wrong.
    """
    if request.headers.get("authorization") != "Bearer let me in":
        raise HTTPException(401)


@pytest.fixture
async def web() -> Any:
    """Return a client of an application that mounts the router."""
    app = FastAPI()
    app.include_router(codec_router(CODEC, ORIGIN, dependencies=[Depends(allowed_in)]), prefix="/codec")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gateway") as client:
        yield client


async def test_the_web_ui_gets_its_payloads_decoded(web: httpx2.AsyncClient) -> None:
    """The preflight needs no credentials, the call does, and both answer only one origin."""
    preflight = await web.options("/codec/decode", headers={"Origin": ORIGIN, "Access-Control-Request-Method": "POST"})
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert {"authorization", "content-type", "x-namespace"} <= {
        name.strip() for name in preflight.headers["access-control-allow-headers"].split(",")
    }
    sealed = body(*(await CODEC.encode([PLAIN])))
    assert (await web.post("/codec/decode", content=sealed)).status_code == 401
    answer = await web.post("/codec/decode", content=sealed, headers={"Authorization": "Bearer let me in"})
    assert (answer.status_code, answer.json()) == (200, json.loads(body(PLAIN)))
    assert answer.headers["access-control-allow-origin"] == ORIGIN


async def test_an_undecodable_request_gives_400_with_a_reason(web: httpx2.AsyncClient) -> None:
    """A missing key, an invalid body and a body that is too long each give status 400 and the reason."""
    web.headers["Authorization"] = "Bearer let me in"
    sealed = body(*(await EncryptionCodec([NEW]).encode([PLAIN])))
    for content, words in ((sealed, "the key 'new'"), (b"{", "not JSON of the form"), (b" " * 16_000_001, "000 bytes")):
        answer = await web.post("/codec/decode", content=content)
        assert (answer.status_code, words in answer.text) == (400, True)
        assert answer.headers["access-control-allow-origin"] == ORIGIN
