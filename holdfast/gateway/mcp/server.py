"""The MCP server of one caller: tools, tasks and resources, on the SDK's low-level server.

1. Every request is answered from Temporal and the record: a server keeps nothing between two requests, so any number of
   gateways serve the same tasks.
2. A client that has tasks (`io.modelcontextprotocol/tasks`) gets a task for each call. Another one gets the thread's id
   at once, and reads the result with the tool `result`.
3. An error says the same about a task of another caller as about one that does not exist.
4. No tool decides requests: an LLM calls tools. A decision is the response to an elicitation, which a client puts to a
   person.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import structlog
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextContent,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from holdfast.api.waiting import Waited, cause_of, look
from holdfast.client.idempotent_starts import start_once
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.core.stores import ArtifactStore
from holdfast.errors import HoldfastError, TaskDiffers, ThreadForgotten, ThreadNotFound
from holdfast.gateway.authentication import check_scope
from holdfast.gateway.bodies import ReasonBody
from holdfast.gateway.callers import Caller, Scope
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem, problem_of
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.mcp.decisions import OpenRequest, decision_of, form, link, open_requests
from holdfast.gateway.mcp.exposed import RESULT_TOOL, ExposedAgent
from holdfast.gateway.mcp.ids import is_own, key_of, task_id
from holdfast.gateway.mcp.resources import read_content, read_list, templates, wanted
from holdfast.gateway.mcp.results import ResultArguments, result_of, result_tool, started
from holdfast.gateway.mcp.tasks import TASKS, Task, TaskParams, UpdateParams, task_of
from holdfast.gateway.page.links import RequestPage
from holdfast.gateway.routes.interventions import Actions
from holdfast.gateway.routes.results import wait_for
from holdfast.version import __version__

INSTRUCTIONS = (
    "Each tool gives a task to an agent, which works on its own, may take long, and may have to wait for people. "
    f"Without tasks support, a call returns a thread at once: read its result with the tool {RESULT_TOOL}."
)

RUNS = 10_000
"""The most runs whose beginning is in memory."""

_DONE = {"resultType": "complete"}

log = structlog.get_logger("gateway")

Request = ServerRequestContext[Any, Any]
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Backend:
    """What the servers of all callers have in common."""

    threads: Threads
    actions: Actions
    agents: Mapping[str, ExposedAgent]
    artifacts: ArtifactStore | None
    waits: Slots
    longest_wait: int
    """The longest wait for a result, in seconds."""
    page_of: RequestPage = lambda thread, request: None
    """See `holdfast.gateway.page.links.RequestPage`."""
    begun: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    """When runs began, the latest read last."""

    async def begun_at(self, thread: str) -> datetime:
        """Return when a run began.

        Raises:
            ThreadNotFound: There is no such run.
        """
        if thread not in self.begun:
            found = await self.threads.reader.find(thread)
            begun = found.start_time if found else None
            async for event in self.threads.events(thread, found=found, note=note):
                begun = datetime.fromisoformat(event["at"])  # Temporal's own time is that of its latest run
                break
            if begun is None:
                raise ThreadNotFound(thread)
            self.begun[thread] = begun
            if len(self.begun) > RUNS:
                self.begun.popitem(last=False)
        return self.begun[thread]


def server_for(caller: Caller, backend: Backend, *, first: ServerMiddleware[Any] | None = None) -> Server[Any]:
    """Return the server of a caller.

    Args:
        caller: The authenticated caller.
        backend: The threads, and what else serves them.
        first: Runs before each request; None for nothing.
    """
    handlers = _Handlers(caller, backend)
    server: Server[Any] = Server(
        "holdfast",
        version=__version__,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=handlers.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,  # type: ignore[arg-type]  # a task is a result of the extension
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, handlers.get_task)
    server.add_request_handler("tasks/update", UpdateParams, handlers.update_task)
    server.add_request_handler("tasks/cancel", TaskParams, handlers.cancel_task)
    server.middleware += [_answer_errors, *([first] if first else [])]
    return server


class _Handlers:
    """The requests of one caller."""

    def __init__(self, caller: Caller, backend: Backend) -> None:
        self._caller = caller
        self._backend = backend
        self._threads = backend.threads

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, for the check of headers that mirror them."""
        agent = self._agents.get(name)
        return agent.input_schema if agent else None

    @property
    def _agents(self) -> Mapping[str, ExposedAgent]:
        return self._backend.agents if "start" in self._caller.scopes else {}

    async def list_tools(self, request: Request, params: PaginatedRequestParams | None) -> ListToolsResult:
        """List the tools that the caller may call."""
        tasks = _has_tasks(request)
        tools = [
            Tool(
                name=each.name,
                title=each.agent.title or None,
                description=each.description,
                input_schema=each.input_schema,
                output_schema=each.output_schema if tasks else None,
            )
            for each in self._agents.values()
        ]
        if not tasks and "read" in self._caller.scopes:
            tools.append(result_tool(self._backend.longest_wait))
        return ListToolsResult(tools=tools)

    async def call_tool(self, request: Request, params: CallToolRequestParams) -> CallToolResult | dict[str, Any]:
        """Give an agent its task, or read a result. An error that an LLM can correct is the result of the call."""
        tasks = _has_tasks(request)
        if params.name == RESULT_TOOL and not tasks:
            call: Awaitable[CallToolResult | dict[str, Any]] = self._result(request, params)
        elif params.name in self._backend.agents:
            check_scope(self._caller, "start")
            call = self._start(self._backend.agents[params.name], request, params, tasks=tasks)
        else:
            raise HTTPProblem(404, "there is no such tool; tools/list lists those that there are")
        try:
            return await call
        except (HTTPProblem, HoldfastError) as error:
            problem = error if isinstance(error, HTTPProblem) else problem_of(error, "")
            return CallToolResult(content=[TextContent(text=str(problem))], is_error=True)

    async def _start(
        self, agent: ExposedAgent, request: Request, params: CallToolRequestParams, *, tasks: bool
    ) -> CallToolResult | dict[str, Any]:
        """Start a run, and answer once Temporal has it."""
        arguments = agent.arguments(params.arguments)
        thread = task_id(self._caller, key_of(request.meta))
        options = StartOptions(agent=agent.name, by=self._caller.name, idle_limit=0, context=arguments.context)
        try:
            await start_once(self._threads, arguments.task, thread, options, exactly=True)
        except TaskDiffers:
            raise HTTPProblem(422, "this key was used for another call; repeat that one, or use a new key") from None
        if not tasks:
            return started(thread)
        begun = await self._backend.begun_at(thread)
        return Task(id=thread, status="working", created_at=begun, updated_at=begun).wire("task")

    async def _result(self, request: Request, params: CallToolRequestParams) -> CallToolResult:
        check_scope(self._caller, "read")
        arguments = ResultArguments.of(params.arguments)
        thread = self._own(arguments.thread)
        waited = await self._look(thread)
        seconds = min(arguments.wait, self._backend.longest_wait)
        if seconds and not waited.over:
            with self._backend.waits.slot(self._caller.name):
                scope = request.request.scope if request.request else {}
                waited = await wait_for(self._threads, thread, "attention", seconds, scope=scope)
        return result_of(waited)

    async def get_task(self, request: Request, params: TaskParams) -> dict[str, Any]:
        """Return a task as it is now."""
        thread = self._task(request, params.task_id, "read")
        waited = await self._look(thread)
        failed = waited.state.status == "failed"
        task = task_of(
            waited,
            begun=await self._backend.begun_at(thread),
            cause=await cause_of(self._threads, waited.state) if failed else "",
            requests=self._requests(waited),
        )
        return task.wire("complete")

    def _requests(self, waited: Waited) -> dict[str, dict[str, Any]]:
        """Return the elicitations of the open requests that this caller may decide, by key."""
        asked = {each.key(waited.state.thread): self._elicitation(each) for each in self._open(waited)}
        return {
            key: each.model_dump(mode="json", by_alias=True, exclude_none=True) for key, each in asked.items() if each
        }

    def _open(self, waited: Waited) -> list[OpenRequest]:
        may = "decide" in self._caller.scopes and not waited.over
        return list(open_requests(waited, by=self._caller.name)) if may else []

    def _elicitation(self, asked: OpenRequest) -> ElicitRequest | None:
        if not self._must_sign(asked):
            return form(asked) if asked.answers else None
        url = self._backend.page_of(asked.thread, asked.request.request)
        return link(asked, url) if url else None

    def _must_sign(self, asked: OpenRequest) -> bool:
        agent = self._backend.agents.get(asked.agent or "")
        return agent.must_sign if agent else any(each.must_sign for each in self._backend.agents.values())

    async def update_task(self, request: Request, params: UpdateParams) -> dict[str, Any]:
        """Decide requests, in the caller's name. A response to a request that is not open decides nothing."""
        thread = self._task(request, params.task_id, "decide")
        waited = await self._look(thread)
        asked = {each.key(thread): each for each in self._open(waited) if not self._must_sign(each)}
        decided = [
            (asked[key], decision_of(asked[key], response))
            for key, response in params.input_responses.items()
            if key in asked
        ]
        problems = []
        for each, decision in decided:
            try:
                if decision is not None:
                    await self._backend.actions.decide(each.thread, decision, by=self._caller.name)
            except HTTPProblem as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return _DONE

    async def cancel_task(self, request: Request, params: TaskParams) -> dict[str, Any]:
        """Ask a run to stop; nothing happens to one that is over."""
        thread = self._task(request, params.task_id, "cancel")
        waited = await self._look(thread)
        if not waited.over:
            await self._backend.actions.cancel(thread, ReasonBody(reason="tasks/cancel"), by=self._caller.name)
        return _DONE

    async def list_resources(self, request: Request, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List nothing: no caller can list tasks, so it cannot list what they have."""
        return ListResourcesResult(resources=[])

    async def list_templates(
        self, request: Request, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List the forms of resources."""
        return ListResourceTemplatesResult(resource_templates=templates())

    async def read_resource(self, request: Request, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a transcript, a list of artifacts, or an artifact."""
        resource = wanted(params.uri)
        check_scope(self._caller, resource.scope)
        self._own(resource.task)
        if resource.address is None:
            return await _found(read_list(self._threads, params.uri, resource))
        if self._backend.artifacts is None:
            raise HTTPProblem(503, "this server has no artifact store: set DATABASE_URL as the workers have it")
        return await _found(read_content(self._threads, self._backend.artifacts, params.uri, resource))

    def _task(self, request: Request, task: str, scope: Scope) -> str:
        """Return the thread of a task that a client names, if the caller may do this with it."""
        if not _has_tasks(request):
            missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", missing)
        post = request.request  # None over stdio, which has no headers
        if post is not None and decode_header_value(post.headers.get(MCP_NAME_HEADER)) != task:
            raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's 'taskId'")
        check_scope(self._caller, scope)
        return self._own(task)

    def _own(self, task: str) -> str:
        if not is_own(self._caller, task):
            raise _no_task()
        return task

    async def _look(self, thread: str) -> Waited:
        return await _found(look(self._threads, thread, note=note))


async def _found(reading: Awaitable[_Read]) -> _Read:
    """Read a run; say the same of one that does not exist as of one of another caller."""
    try:
        return await reading
    except (ThreadNotFound, ThreadForgotten):
        raise _no_task() from None


def _no_task() -> HTTPProblem:
    return HTTPProblem(404, "there is no such task")


def _has_tasks(request: Request) -> bool:
    """Whether the client of a request has tasks: it says so with each request."""
    wanted = ClientCapabilities(extensions={TASKS: {}})
    return request.protocol_version in MODERN_PROTOCOL_VERSIONS and request.session.check_client_capability(wanted)


async def _answer_errors(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Answer an error with its reason, and an unexpected one without: the log has that."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except HTTPProblem as problem:
        raise _error_of(problem) from None
    except HoldfastError as error:
        raise _error_of(problem_of(error, "")) from None
    except Exception:
        log.exception("mcp_request_failed", method=ctx.method)
        raise MCPError(INTERNAL_ERROR, "the server failed; its log says why") from None


def _error_of(problem: HTTPProblem) -> MCPError:
    wrong = 400 <= problem.status < 500 and problem.status != 429
    data = {"status": problem.status, "outcome": problem.outcome} if problem.outcome else {"status": problem.status}
    return MCPError(INVALID_PARAMS if wrong else INTERNAL_ERROR, str(problem), data)
