"""Makes ordinary tools of the pinned tools of MCP servers, and the resource by which they reach their servers.

A run knows nothing of MCP: policy, budgets, approvals, effects and the ledger apply to these tools as to any.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.agents.providers import Provider
from holdfast.core.tools.argument_schema import unfit
from holdfast.core.tools.decorator import ToolContext
from holdfast.core.tools.resources import Resource
from holdfast.core.tools.schema_tools import SchemaTool, Unread
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.tools.spec import ToolSpec
from holdfast.mcp.limits import CONNECT_SECONDS
from holdfast.mcp.pins import PinnedServer, PinnedTool, offered_names

if TYPE_CHECKING:
    from holdfast.mcp.connection import Connection


class MCPConnections:
    """The connections of a worker to the MCP servers of its catalog, shared by all runs.

    Args:
        servers: The servers, by name.
        secrets: Those that they declare.
    """

    def __init__(self, servers: Mapping[str, MCP], secrets: Secrets) -> None:
        self._servers = servers
        self._secrets = secrets
        self._connections: dict[str, Connection] = {}

    def to(self, name: str) -> "Connection":
        """Return the connection to a server, which is opened on first use."""
        from holdfast.mcp.connection import Connection

        if name not in self._connections:
            server = self._servers[name]
            values = {each: self._secrets.value(each) for each in server.secrets}
            self._connections[name] = Connection(server, values)
        return self._connections[name]

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))


@asynccontextmanager
async def connected(servers: Iterable[MCP], secrets: Secrets) -> AsyncIterator[MCPConnections]:
    """Yield the connections to servers; close them at the end of the block."""
    for module in ("connection", "calls"):  # the SDK takes a second, in which no run should wait for the event loop
        await asyncio.to_thread(import_module, f"holdfast.mcp.{module}")
    connections = MCPConnections({server.name: server for server in servers}, secrets)
    try:
        yield connections
    finally:
        await connections.close()


def provider_of(servers: Iterable[MCP]) -> Provider:
    """Return the provider of the connections to servers, for their catalog."""
    listed = list(servers)
    secrets = tuple(dict.fromkeys(name for server in listed for name in server.secrets))

    def mcp_servers(secrets: Secrets = NO_SECRETS) -> Any:
        return connected(listed, secrets)

    needs = {"secrets": Secrets} if secrets else {}
    return Provider(mcp_servers, MCPConnections, needs, "async", secrets)


def tools_of(server: MCP, pinned: PinnedServer) -> list[SchemaTool]:
    """Return the tools that a catalog offers of a server, in the order of their names."""
    names = offered_names(server, pinned.tools)
    return [_tool(server, pinned, tool, names[tool.name]) for tool in pinned.tools if tool.name in names]


def _tool(server: MCP, pinned: PinnedServer, tool: PinnedTool, name: str) -> SchemaTool:
    effect, pin = server.effect_of(tool.name), pinned.pin_of(tool)

    async def call(arguments: dict[str, Any], context: ToolContext, servers: Resource[MCPConnections]) -> Any:
        from holdfast.mcp.calls import ForeignCall

        return await ForeignCall(server, tool, pin, servers.to(server.name), context).run(arguments)

    spec = ToolSpec(
        name=name,
        description=tool.description.strip() or tool.title or tool.name,
        parameters=_parameters(tool.input_schema),
        effect=effect,
        timeout=server.timeout + 2 * CONNECT_SECONDS,
        settles_within=server.timeout,
        trust=server.trust,
        pin=pin,
    )
    return SchemaTool(spec, call, None, None, Unread, files=())


def _parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the arguments, whole, but for defaults that it rejects itself."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {**schema, "properties": {}}
    return {**schema, "properties": {name: _property(each, schema) for name, each in properties.items()}}


def _property(schema: Any, whole: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {} if schema else {"not": {}}
    if "default" not in schema:
        return schema
    alone: dict[str, Any] = {key: whole[key] for key in ("$schema", "$defs", "definitions") if key in whole}
    if not unfit(schema["default"], {**alone, **schema}):
        return schema
    return {key: value for key, value in schema.items() if key != "default"}
