"""Builds the gateway as one ASGI application."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from temporalio.converter import PayloadCodec

from holdfast.audit.evidence.anchors import Anchors
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.page_links import PREFIX, is_servable
from holdfast.core.authority.signatures import public_key
from holdfast.core.memory.semantic import MemoryStore
from holdfast.core.stores import ArtifactStore
from holdfast.encryption.codec_server import MAX_BYTES as CODEC_BYTES
from holdfast.encryption.codec_server import codec_router
from holdfast.errors import HoldfastError
from holdfast.gateway.authentication import Authenticator
from holdfast.gateway.callers import Callers
from holdfast.gateway.descriptions import DescribedApp
from holdfast.gateway.http.limits import BODY_BYTES, BODY_SECONDS, Limits
from holdfast.gateway.http.problems import (
    HTTPProblem,
    answer_error,
    answer_http_exception,
    answer_problem,
    answer_unexpected_error,
    answer_validation_error,
)
from holdfast.gateway.http.quotas import EACH_ADDRESS, EACH_CALLER, Quota, Slots
from holdfast.gateway.mcp.exposed import ExposedAgent
from holdfast.gateway.page.app import build_page
from holdfast.gateway.page.examining import Checks
from holdfast.gateway.page.links import RequestPage
from holdfast.gateway.page.sessions import Sessions
from holdfast.gateway.routes.acting import acting_router
from holdfast.gateway.routes.artifacts import artifacts_router
from holdfast.gateway.routes.events import events_router
from holdfast.gateway.routes.exports import exports_router
from holdfast.gateway.routes.feeds import feeds_router
from holdfast.gateway.routes.forks import forking_router
from holdfast.gateway.routes.health import health_router
from holdfast.gateway.routes.interventions import Actions
from holdfast.gateway.routes.publications import publishing_router
from holdfast.gateway.routes.results import results_router
from holdfast.gateway.routes.schedules import scheduling_router
from holdfast.gateway.routes.slack import slack_router
from holdfast.gateway.routes.starts import starting_router
from holdfast.gateway.routes.threads import reading_router
from holdfast.streaming.followers import Followers
from holdfast.streaming.hub import Hub

FOLLOWERS = 64
"""The most concurrent streams; also of waits, and of downloads. A stream or a wait queries its worker four times a
second, a few milliseconds each; all streams of a thread do so together."""
FOLLOWERS_EACH = 16
"""The same for one caller."""
EXPORTS, EXPORTS_EACH = 8, 2
"""The most concurrent exports, and those of one caller: each reads a whole thread, and needs disk until it is sent."""
WAIT_SECONDS = 30
"""The longest wait for a result: below the timeouts of proxies, and below `limits.ANSWER_SECONDS`."""

CODEC = "/codec"

Responder = Callable[[Request, Exception], Awaitable[JSONResponse]]


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
    wait_seconds: int = WAIT_SECONDS,
    artifacts: ArtifactStore | None = None,
    evidence: Evidence | None = None,
    anchors: Anchors | None = None,
    codec: PayloadCodec | None = None,
    ui: str | None = None,
    hub: Hub | None = None,
    exposed: Mapping[str, ExposedAgent] | None = None,
    page_of: RequestPage = lambda thread, request: None,
    page: str | None = None,
    sessions: Sessions | None = None,
    memories: MemoryStore | None = None,
    openid_secret: str = "",
    checks: Checks | None = None,
) -> Limits:
    """Build the gateway.

    Args:
        threads: The threads to serve.
        callers: The callers with access.
        key: The gateway's private key; None to sign no decision.
        slack_secret: The signing secret of the Slack app with decision buttons; None for no buttons.
        audience: The gateway's URL, which signed requests name; None to reject signed requests.
        followers: The most concurrent streams of events; also of waits, and of downloads.
        followers_each: The most for one caller.
        each_caller: The quota of each caller.
        each_address: The quota of each address, for unauthenticated requests.
        body_bytes: The longest body.
        body_seconds: The time within which a body has to arrive.
        wait_seconds: The longest wait for a result.
        artifacts: The artifact store; None to read no artifact's content.
        evidence: Ledger and artifacts, for exports; None to leave them out.
        anchors: The anchors with seals of threads, for exports; None to leave them out.
        codec: Decrypts payloads for Temporal's Web UI, at /codec, for callers with the scope; None without encryption.
        ui: The address of the Web UI, whose page may use /codec; None for no /codec.
        hub: The streams of replies that are being written; None for none.
        exposed: The agents that MCP clients may call, at /mcp; None or empty for none. It needs `audience`.
        page_of: See `holdfast.gateway.page.links.RequestPage`.
        page: This gateway's URL, by which browsers reach the page; None to serve no page.
        sessions: The sessions on the page; None for new ones.
        memories: The memories of agents, for the page; None without a store of them.
        openid_secret: The client's secret at the OpenID Connect provider; empty for a public client.
        checks: The checks of this process, for operators on the page; None for none.
    """
    authenticator = Authenticator(callers, audience, each_caller)
    app = DescribedApp(
        title="Holdfast gateway",
        description="Threads over HTTP: start and read them, decide their requests, send them messages.",
        version="1",
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # for code generators
    )
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, answer)
    app.include_router(health_router(threads))
    actions = Actions(threads, key)
    slots = partial(Slots, limit=followers, each=followers_each)
    waits, streams, followed = slots("waits"), slots("streams"), Followers(threads)
    for router in (
        starting_router(threads, authenticator),
        forking_router(threads, authenticator),
        reading_router(threads, authenticator),
        events_router(threads, authenticator, streams, hub, followed),
        feeds_router(threads, authenticator, streams, actions, hub, followed),
        results_router(threads, authenticator, waits, longest=wait_seconds),
        artifacts_router(threads, authenticator, artifacts, slots("downloads")),
        exports_router(
            threads, authenticator, evidence, Slots("exports", EXPORTS, EXPORTS_EACH), key=key, anchors=anchors
        ),
        acting_router(authenticator, actions),
        scheduling_router(threads, authenticator),
        publishing_router(threads, authenticator),
    ):
        app.include_router(router)
    if slack_secret:
        app.include_router(slack_router(actions, callers, secret=slack_secret))
    if exposed:
        from holdfast.gateway.mcp.route import mcp_router  # an extra of its own
        from holdfast.gateway.mcp.server import Backend

        backend = Backend(threads, actions, exposed, artifacts, waits, wait_seconds, page_of)
        app.include_router(mcp_router(authenticator, backend, audience or ""))
    if page and is_servable(page):
        public = public_key(key) if key else ""
        sessions = sessions or Sessions()
        served = build_page(
            threads,
            authenticator,
            actions,
            url=page,
            gateway_key=public,
            sessions=sessions,
            evidence=evidence,
            anchors=anchors,
            memories=memories,
            openid_secret=openid_secret,
            private_key=key or "",
            checks=checks,
            hub=hub,
        )
        app.mount(PREFIX, served)
    body_bytes_below = {}
    if codec and ui:
        dependencies = [Depends(authenticator.for_scope("codec"))]
        app.include_router(codec_router(codec, _origin(ui), dependencies=dependencies), prefix=CODEC)
        body_bytes_below[CODEC] = CODEC_BYTES
    return Limits(
        app,
        body_bytes=body_bytes,
        body_seconds=body_seconds,
        body_bytes_below=body_bytes_below,
        unauthenticated=each_address,
    )


def _origin(ui: str) -> str:
    """Return the origin of a page, in a browser's notation."""
    parts = urlsplit(ui)
    return f"{parts.scheme}://{parts.netloc}"


_ANSWERS: dict[Any, Responder] = {
    HTTPProblem: answer_problem,
    HoldfastError: answer_error,
    HTTPException: answer_http_exception,
    RequestValidationError: answer_validation_error,
    Exception: answer_unexpected_error,
}
