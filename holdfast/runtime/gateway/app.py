"""Puts the gateway together: one ASGI application."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from temporalio.converter import PayloadCodec

from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.codec_server import MAX_BYTES as CODEC_BYTES
from holdfast.runtime.encryption.codec_server import codec_router
from holdfast.runtime.gateway.actions import Acting
from holdfast.runtime.gateway.authentication import Authenticator
from holdfast.runtime.gateway.callers import Callers
from holdfast.runtime.gateway.limits import BODY_BYTES, BODY_SECONDS, Limits
from holdfast.runtime.gateway.problems import Trouble, on_failure, on_http, on_invalid, on_trouble
from holdfast.runtime.gateway.quotas import EACH_ADDRESS, EACH_CALLER, Quota
from holdfast.runtime.gateway.routes import health_router, router
from holdfast.runtime.gateway.slack import slack_router
from holdfast.runtime.gateway.stream import Followers

FOLLOWERS = 64
"""Who may follow events at once. Each asks its worker four times a second, at a few milliseconds a time."""
FOLLOWERS_EACH = 16
"""How many of them one caller may be."""

CODEC = "/codec"

Answering = Callable[[Request, Exception], Awaitable[JSONResponse]]


def build_app(
    threads: Threads,
    callers: Callers,
    *,
    key: str | None = None,
    slack_secret: str | None = None,
    audience: str | None = None,
    followers: int = FOLLOWERS,
    followers_each: int = FOLLOWERS_EACH,
    each_caller: Quota = EACH_CALLER,
    each_address: Quota = EACH_ADDRESS,
    body_bytes: int = BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    codec: PayloadCodec | None = None,
    ui: str | None = None,
) -> Limits:
    """The gateway.

    Args:
        threads: What it gives access to.
        callers: To whom.
        key: Its private key; None for one that vouches for nobody.
        slack_secret: Of the Slack app whose buttons decide; None for no such buttons.
        audience: Its URL, for which requests are signed; None for one that takes no signed requests.
        followers: Who may follow events at once.
        followers_each: How often one caller may.
        each_caller: What each caller may take.
        each_address: What each address may take whose callers are not known.
        body_bytes: The longest body.
        body_seconds: In which a body has to arrive.
        codec: Decrypts for Temporal's Web UI, at /codec, for those with the scope; None where nothing is encrypted.
        ui: The Web UI, whose page may ask for that; None for no /codec.
    """
    doors = Authenticator(callers, audience, each_caller)
    app = FastAPI(
        title="Holdfast gateway",
        description="Threads over HTTP: read them, decide what they ask, talk to them.",
        version="1",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, answer)
    app.include_router(health_router(threads))
    acting = Acting(threads, key)
    app.include_router(router(threads, doors, acting, Followers(followers, followers_each)))
    if slack_secret:
        app.include_router(slack_router(acting, callers, secret=slack_secret))
    larger = {}
    if codec and ui:
        opens = [Depends(doors.for_scope("codec"))]
        app.include_router(codec_router(codec, _origin(ui), dependencies=opens), prefix=CODEC)
        larger[CODEC] = CODEC_BYTES
    return Limits(app, body_bytes=body_bytes, body_seconds=body_seconds, larger=larger, unknown=each_address)


def _origin(ui: str) -> str:
    """What a browser calls the place of a page."""
    parts = urlsplit(ui)
    return f"{parts.scheme}://{parts.netloc}"


_ANSWERS: dict[Any, Answering] = {
    Trouble: on_trouble,
    HTTPException: on_http,
    RequestValidationError: on_invalid,
    Exception: on_failure,
}
