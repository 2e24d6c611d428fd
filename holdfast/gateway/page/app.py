"""Builds the page as an application of its own, which the gateway serves below `/page`."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.audit.evidence.anchors import Anchors
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.core.memory.semantic import MemoryStore
from holdfast.errors import HoldfastError
from holdfast.gateway.authentication import Authenticator
from holdfast.gateway.http.problems import TITLES, HTTPProblem, problem_of
from holdfast.gateway.page.bulk import BulkDeciding
from holdfast.gateway.page.changing import Changing
from holdfast.gateway.page.deciding import Deciding
from holdfast.gateway.page.examining import Checks, Examining
from holdfast.gateway.page.fleet import Fleet
from holdfast.gateway.page.guards import Origin, see_other
from holdfast.gateway.page.inbox import Inbox
from holdfast.gateway.page.inspecting import Inspecting
from holdfast.gateway.page.remembering import Remembering
from holdfast.gateway.page.rendering import page, static_file
from holdfast.gateway.page.sessions import Sessions
from holdfast.gateway.page.signing_in import SigningIn
from holdfast.gateway.page.verifying import Verifying
from holdfast.gateway.page.visits import Door
from holdfast.gateway.page.watching import Watching
from holdfast.gateway.routes.interventions import Actions
from holdfast.streaming.hub import Hub


def build_page(
    threads: Threads,
    authenticator: Authenticator,
    actions: Actions,
    *,
    url: str,
    gateway_key: str,
    sessions: Sessions,
    evidence: Evidence | None = None,
    anchors: Anchors | None = None,
    memories: MemoryStore | None = None,
    openid_secret: str = "",
    private_key: str = "",
    checks: Checks | None = None,
    hub: Hub | None = None,
) -> Starlette:
    """Build the page.

    Args:
        threads: The threads.
        authenticator: The gateway's callers and their quotas.
        actions: Sends decisions and other interventions.
        url: The gateway's URL, by which browsers reach it.
        gateway_key: The public key with which the gateway vouches for people; empty for none.
        sessions: The sessions of people.
        evidence: Ledger and artifacts, to verify runs; None without them.
        anchors: The anchors with seals of threads; None for none.
        memories: The memories of agents; None without a store of them.
        openid_secret: The client's secret at the OpenID Connect provider; empty for a public client.
        private_key: The gateway's private key, which seals sign-ins of a public client; empty for none.
        checks: The checks of this process, for operators; None for none.
        hub: The streams of replies that are being written; None for none.
    """
    door = Door(Origin(url), sessions, authenticator, gateway_key)
    inbox = Inbox(threads)
    signing_in, deciding = SigningIn(door), Deciding(threads, actions, authenticator.callers, inbox)
    bulk = BulkDeciding(threads, actions, inbox)
    verifying, remembering = Verifying(threads, evidence, anchors), Remembering(threads, memories)
    watching, inspecting = Watching(threads, actions, verifying.badge, hub), Inspecting(threads)
    examining = Examining(checks)
    fleet = Fleet(threads, examining)
    changing, visit = Changing(threads, actions), door.visit
    federated = []
    if provider := authenticator.callers.openid:
        from holdfast.gateway.page.federated import Federated  # its packages are slow to import
        from holdfast.gateway.page.flows import flow_key

        key = flow_key(openid_secret=openid_secret, gateway_key=private_key)
        signing = Federated(door, provider, openid_secret, key=key)
        federated = [Route("/openid/begin", signing.begin), Route("/openid/callback", signing.finish)]

    async def static(request: Request) -> Response:
        if (file := static_file(request.path_params["name"])) is None:
            raise HTTPProblem(404, "there is no such file")
        return file

    async def home(request: Request) -> Response:
        return see_other("inbox")

    return Starlette(
        routes=[
            Route("/", home),
            Route("/static/{name}", static),
            Route("/sign-in", signing_in.show, methods=["GET"]),
            Route("/sign-in", signing_in.sign_in, methods=["POST"]),
            *federated,
            Route("/sign-out", visit(signing_in.sign_out), methods=["POST"]),
            Route("/key", visit(deciding.key), methods=["GET"]),
            Route("/inbox", visit(deciding.inbox), methods=["GET"]),
            Route("/requests/{thread}/{request}", visit(deciding.show), methods=["GET"]),
            Route("/requests/{thread}/{request}", visit(deciding.decide), methods=["POST"]),
            Route("/bulk/{kind}", visit(bulk.show), methods=["GET"]),
            Route("/bulk/{kind}", visit(bulk.act), methods=["POST"]),
            Route("/runs", visit(watching.list_runs), methods=["GET"]),
            Route("/runs", visit(watching.start), methods=["POST"]),
            Route("/new-run", visit(watching.new), methods=["GET"]),
            Route("/runs/{thread}", visit(watching.show), methods=["GET"]),
            Route("/runs/{thread}/live", visit(watching.live), methods=["GET"]),
            Route("/runs/{thread}/stream", visit(watching.drafts.stream), methods=["GET"]),
            Route("/runs/{thread}/calls", visit(inspecting.calls), methods=["GET"]),
            Route("/runs/{thread}/costs", visit(inspecting.costs), methods=["GET"]),
            Route("/runs/{thread}/prompt", visit(inspecting.prompt), methods=["GET"]),
            Route("/runs/{thread}/tree", visit(inspecting.tree), methods=["GET"]),
            Route("/runs/{thread}/at", visit(inspecting.at), methods=["GET"]),
            Route("/runs/{thread}/forks", visit(inspecting.fork), methods=["POST"]),
            Route("/runs/{thread}/verify", visit(verifying.show), methods=["GET"]),
            Route("/runs/{thread}/verify", visit(verifying.check), methods=["POST"]),
            Route("/runs/{thread}/memory", visit(remembering.show), methods=["GET"]),
            Route("/runs/{thread}/memory", visit(remembering.change), methods=["POST"]),
            Route("/fleet", visit(fleet.show), methods=["GET"]),
            Route("/fleet/checks", visit(examining.show), methods=["GET"]),
            Route("/fleet/checks", visit(examining.check), methods=["POST"]),
            Route("/runs/{thread}/messages", visit(watching.say), methods=["POST"]),
            Route("/runs/{thread}/change", visit(changing.show), methods=["GET"]),
            Route("/runs/{thread}/refinements", visit(changing.refine), methods=["POST"]),
            Route("/runs/{thread}/extensions", visit(changing.extend), methods=["POST"]),
            Route("/runs/{thread}/{act}", visit(watching.act), methods=["POST"]),
        ],
        exception_handlers={
            HTTPProblem: _problem,
            HoldfastError: _error,
            HTTPException: _http_exception,
            Exception: _unexpected,
        },
    )


def _page_of(problem: HTTPProblem) -> Response:
    response = page(
        "problem.html",
        problem.status,
        title=TITLES.get(problem.status, "Refused"),
        detail=str(problem),
    )
    response.headers.update(problem.headers)
    return response


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPProblem)
    return _page_of(error)


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return _page_of(problem_of(error, getattr(request.state, "thread", "")))


async def _http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _page_of(HTTPProblem(error.status_code, "there is nothing at this address of the page"))


async def _unexpected(_: Request, error: Exception) -> Response:
    return _page_of(HTTPProblem(500, "the gateway failed; its log says why"))
