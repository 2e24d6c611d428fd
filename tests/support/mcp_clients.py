"""The official SDK's client, with the client's side of the tasks extension, for our own MCP server."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result, TextResourceContents
from pydantic import TypeAdapter

from tests.support.rig import PATIENCE, eventually

JSON = dict[str, Any]
TASKS = "io.modelcontextprotocol/tasks"
KEY = "holdfast/effect-key"
_ANY: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class TaskCreated(Result):
    """A task in place of the result of a call."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class _TaskParams(RequestParams):
    task_id: str
    input_responses: JSON | None = None


class _TaskRequest(Request[_TaskParams, str]):
    name_param = "taskId"


class _Tasks(ClientExtension):
    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskCreated, resolve=self._resolve)]

    async def _resolve(self, created: TaskCreated, context: ClaimContext) -> CallToolResult:
        raise AssertionError("the tests follow tasks themselves")


class MCPClient:
    """A connected client, which has tasks unless it was opened without."""

    def __init__(self, client: Client) -> None:
        self.sdk = client

    async def start(self, agent: str, /, *, key: str = "", **arguments: Any) -> TaskCreated:
        """Call an agent, and return the task."""
        meta: Any = {KEY: key} if key else None
        created = await self.sdk.session.call_tool(agent, arguments, meta=meta, allow_claimed=True)
        assert isinstance(created, TaskCreated), created
        return created

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        """Call a tool whose result comes at once."""
        result = await self.sdk.session.call_tool(tool, arguments, allow_claimed=True)
        assert isinstance(result, CallToolResult), result
        return result

    async def read(self, uri: str) -> str:
        """Return the text of a resource."""
        (content,) = (await self.sdk.session.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents), content
        return content.text

    async def send(self, method: str, task: str, responses: JSON | None = None) -> JSON:
        """Send a request about a task."""
        params = _TaskParams(task_id=task, input_responses=responses)
        result: JSON = await self.sdk.session.send_request(_TaskRequest(method=method, params=params), _ANY)
        return result

    async def get(self, task: str) -> JSON:
        """Return a task."""
        return await self.send("tasks/get", task)

    async def until(self, task: str, *statuses: str) -> JSON:
        """Return a task once it has one of these statuses."""
        found: JSON = await eventually(lambda: self.get(task), lambda each: each["status"] in statuses)
        return found

    async def answer(self, task: str, response: JSON) -> JSON:
        """Wait for the only request of a task, respond to it, and return the task as it was."""
        asking = await self.until(task, "input_required")
        (key,) = asking["inputRequests"]
        await self.send("tasks/update", task, {key: response})
        return asking


def accept(decision: str, **fields: Any) -> JSON:
    """Return the response of a person who decides."""
    return {"action": "accept", "content": {"decision": decision, **fields}}


@asynccontextmanager
async def over_http(url: str, token: str, *, tasks: bool = True, **options: Any) -> AsyncIterator[MCPClient]:
    """Connect to the MCP server of a gateway."""
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(PATIENCE)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        extensions = [_Tasks()] if tasks else []
        async with Client(transport, extensions=extensions, cache=None, **options) as client:
            yield MCPClient(client)


@asynccontextmanager
async def over_stdio(
    arguments: Sequence[str], environ: dict[str, str], *, tasks: bool = True, **options: Any
) -> AsyncIterator[MCPClient]:
    """Start `holdfast mcp serve`, and connect to it."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "holdfast", "mcp", "serve", *arguments], env=environ
    )
    extensions = [_Tasks()] if tasks else []
    async with Client(server, extensions=extensions, cache=None, **options) as client:
        yield MCPClient(client)
