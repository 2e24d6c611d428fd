"""The codec server: decrypts payloads for Temporal's Web UI and CLI, by Temporal's remote codec protocol.

Anybody who can call `/decode` can read everything: protect the router like the data that it decrypts.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.params import Depends
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.errors import HoldfastError

MAX_BYTES = 16_000_000
"""The longest body accepted. Temporal's own limit for a message is 4 MB."""

ALLOWED_HEADERS = "authorization, content-type, x-csrf-token, x-namespace"
"""The headers that the Web UI sends."""


class BodyInvalid(HoldfastError):
    """A request's body does not follow the protocol."""


async def decode_body(codec: PayloadCodec, body: bytes) -> bytes:
    """Answer `POST /decode`.

    Args:
        codec: The codec with the keys.
        body: `{"payloads": [{"metadata": {"encoding": "<base64>"}, "data": "<base64>"}]}`.

    Returns:
        The same payloads in the same order, decrypted; those in plain text are unchanged.

    Raises:
        BodyInvalid: The body does not have this form.
        DecryptionFailed: A payload's key is not set here, or the payload was altered.
    """
    return _serialize(await codec.decode(_read(body)))


async def encode_body(codec: PayloadCodec, body: bytes) -> bytes:
    """Answer `POST /encode`: encrypt payloads with the first key.

    Raises:
        BodyInvalid: The body does not hold payloads.
    """
    return _serialize(await codec.encode(_read(body)))


def codec_router(codec: PayloadCodec, allowed_origin: str, *, dependencies: Sequence[Depends] = ()) -> APIRouter:
    """Build the router for `POST /decode` and `POST /encode`, with their preflights.

    Args:
        codec: The codec with the keys: `EncryptionCodec.of(settings.encryption_keys)`.
        allowed_origin: The Web UI's origin, such as `https://temporal.example.com`; other pages are refused.
        dependencies: FastAPI dependencies of the two POSTs, such as authentication. A preflight has no credentials.
    """
    router = APIRouter(tags=["codec"])
    headers = {"Access-Control-Allow-Origin": allowed_origin, "Vary": "Origin"}
    if allowed_origin != "*":
        headers["Access-Control-Allow-Credentials"] = "true"  # allows the Web UI's cookie

    def endpoint_of(transform: _Transform) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                content = await transform(codec, await _body(request))
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

    for path, transform in (("/decode", decode_body), ("/encode", encode_body)):
        name = f"codec_{path[1:]}"
        router.add_api_route(
            path,
            endpoint_of(transform),
            methods=["POST"],
            name=name,
            dependencies=dependencies,
            response_class=Response,
        )
        router.add_api_route(
            path, preflight, methods=["OPTIONS"], name=f"{name}_preflight", include_in_schema=False, status_code=204
        )
    return router


_Transform = Callable[[PayloadCodec, bytes], Coroutine[Any, Any, bytes]]


async def _body(request: Request) -> bytes:
    """Read the body up to its limit."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise BodyInvalid(f"the body is longer than {MAX_BYTES:,} bytes")
    return bytes(body)


def _read(body: bytes) -> list[Payload]:
    try:
        decoded = json.loads(body)
        if isinstance(decoded, dict):
            return list(ParseDict(decoded, Payloads(), ignore_unknown_fields=True).payloads)
    except (ParseError, ValueError, RecursionError):
        pass  # one message for all of these
    raise BodyInvalid('the body is not JSON of the form {"payloads": [{"metadata": {…}, "data": "…"}]}')


def _serialize(payloads: Sequence[Payload]) -> bytes:
    return MessageToJson(Payloads(payloads=payloads), indent=None).encode()
