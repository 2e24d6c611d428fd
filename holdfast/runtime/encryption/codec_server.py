"""The codec server: lets Temporal's Web UI and CLI read encrypted payloads, by Temporal's remote codec protocol.

Whoever reaches `/decode` reads everything: mount the router behind the same door as what it opens.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.params import Depends
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from holdfast.errors import HoldfastError
from holdfast.runtime.encryption.codec import DecryptionFailed

MAX_BYTES = 16_000_000
"""A body that is longer is refused: Temporal's own limit for a message is 4 MB."""

ALLOWED_HEADERS = "authorization, content-type, x-csrf-token, x-namespace"
"""What the Web UI sends along."""


class BodyInvalid(HoldfastError):
    """A request's body is not what the protocol says."""


async def decode_body(codec: PayloadCodec, body: bytes) -> bytes:
    """Answer `POST /decode`.

    Args:
        codec: With the keys.
        body: `{"payloads": [{"metadata": {"encoding": "<base64>"}, "data": "<base64>"}]}`.

    Returns:
        The same with the payloads decrypted, as many and in the same order; those that are not encrypted as they are.

    Raises:
        BodyInvalid: The body is not that.
        DecryptionFailed: A payload's key is not set here, or it was altered.
    """
    return _written(await codec.decode(_read(body)))


async def encode_body(codec: PayloadCodec, body: bytes) -> bytes:
    """Answer `POST /encode`: the same the other way round, with the first key.

    Raises:
        BodyInvalid: The body is no payloads.
    """
    return _written(await codec.encode(_read(body)))


def codec_router(codec: PayloadCodec, allowed_origin: str, *, dependencies: Sequence[Depends] = ()) -> APIRouter:
    """`POST /decode` and `POST /encode`, with their preflights.

    Args:
        codec: With the keys: `EncryptionCodec.of(settings.encryption_keys)`.
        allowed_origin: The Web UI's, as `https://temporal.example.com`; other pages' scripts get no answer.
        dependencies: Of the two POSTs, such as who may call them. A browser's preflight carries no credentials.
    """
    router = APIRouter(tags=["codec"])
    headers = {"Access-Control-Allow-Origin": allowed_origin, "Vary": "Origin"}
    if allowed_origin != "*":
        headers["Access-Control-Allow-Credentials"] = "true"  # the Web UI's cookie, where it is told to send it

    def answering(answer: _Answer) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                content = await answer(codec, await _body(request))
            except (BodyInvalid, DecryptionFailed) as error:
                return Response(str(error), 400, headers, media_type="text/plain")
            return Response(content, 200, headers, media_type="application/json")

        return endpoint

    async def preflight() -> Response:
        allowed = {
            "Access-Control-Allow-Methods": "POST, OPTIONS",
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": "600",
        }
        return Response(None, 204, {**headers, **allowed})

    for path, answer in (("/decode", decode_body), ("/encode", encode_body)):
        name = f"codec_{path[1:]}"
        router.add_api_route(
            path, answering(answer), methods=["POST"], name=name, dependencies=dependencies, response_class=Response
        )
        router.add_api_route(
            path, preflight, methods=["OPTIONS"], name=f"{name}_preflight", include_in_schema=False, status_code=204
        )
    return router


_Answer = Callable[[PayloadCodec, bytes], Coroutine[Any, Any, bytes]]


async def _body(request: Request) -> bytes:
    """The body, as far as it may go: what is longer is not read to its end."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise BodyInvalid(f"the body is over {MAX_BYTES:,} bytes long")
    return bytes(body)


def _read(body: bytes) -> list[Payload]:
    try:
        given = json.loads(body)
        if isinstance(given, dict):
            return list(ParseDict(given, Payloads(), ignore_unknown_fields=True).payloads)
    except (ParseError, ValueError, RecursionError):
        pass  # each says in its own words what the sender can see
    raise BodyInvalid('the body is no JSON of payloads: {"payloads": [{"metadata": {…}, "data": "…"}]}')


def _written(payloads: Sequence[Payload]) -> bytes:
    return MessageToJson(Payloads(payloads=payloads), indent=None).encode()
