"""Pins an MCP server for a test, and calls its tools as an activity would."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import MCP, Secrets, ToolContext
from holdfast.core.base.canonical import exact_json
from holdfast.core.tools.schema_tools import SchemaTool
from holdfast.mcp.pinning import read_lists
from holdfast.mcp.pins import PinnedServer
from holdfast.mcp.tools import MCPConnections, connected, tools_of

PROGRAMS = Path(__file__).parent / "mcp_servers"
CONTEXT = ToolContext(thread="t", workspace=Path(), key="k" * 40, attempt=1)


def command(program: str, *arguments: str) -> list[str]:
    """Return the command of one of our servers."""
    return [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments]


class Caller:
    """Calls the tools of a server."""

    def __init__(self, server: MCP, pinned: PinnedServer, connections: MCPConnections) -> None:
        self.server = server
        self.pinned = pinned
        self.connections = connections
        self.tools: dict[str, SchemaTool] = {tool.spec.name: tool for tool in tools_of(server, pinned)}

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool by its name in the catalog, with arguments that are read as the LLM's."""
        tool = self.tools[name]
        values = tool.read(exact_json(arguments)).values
        return await tool.function(values["arguments"], CONTEXT, self.connections)


@asynccontextmanager
async def caller(server: MCP, *, pinned: PinnedServer | None = None, **secrets: str) -> AsyncIterator[Caller]:
    """Yield a caller of a server's tools, as they are now or as pinned."""
    accepted = pinned or (await read_lists([server], Secrets(secrets)))[server.name]
    async with connected([server], Secrets(secrets)) as connections:
        yield Caller(server, accepted, connections)
