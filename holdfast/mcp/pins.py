"""The definitions of a server's tools, as an operator has accepted them, and how those that it offers now differ.

1. The digest of a server covers its source, its identity and its whole list. The pin of a tool covers the server's name
   and the tool's definition, so that a rename, or a tool that is added, leaves the pins of the others as they are.
2. A server sends anything: sizes are checked before a definition is pinned, and the text is data, never code.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.base.canonical import canonical, digest, too_deep, unportable
from holdfast.core.base.models import Frozen

MAX_TOOLS: Final = 500
"""Maximum number of tools of a server."""
MAX_TOOL_BYTES: Final = 64_000
"""Maximum size of a tool's definition, as canonical JSON."""
MAX_LIST_BYTES: Final = 2_000_000
"""Maximum size of a server's whole list."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS: Final = 64


class ServerRejected(Exception):  # never shown to users: callers convert it
    """A server's list cannot be pinned; the message says why, as the end of a sentence about the server."""


class PinnedTool(Frozen):
    """The definition of a tool, whole, as its server gives it."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}
    """The server's hints, such as `readOnlyHint`: shown to operators, and never believed."""

    @cached_property
    def definition(self) -> dict[str, Any]:
        """Its JSON, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def fault(self) -> str:
        """Why it cannot be pinned; empty if it can."""
        if any(map(too_deep, (self.input_schema, self.output_schema, self.annotations))):
            return "it is nested too deeply"
        if why := unportable(self.definition):
            return f"it holds {why}"
        if len(canonical(self.definition)) > MAX_TOOL_BYTES:
            return f"it has more than {MAX_TOOL_BYTES:,} bytes"
        return ""


class PinnedServer(Frozen):
    """The whole list of a server."""

    source: tuple[str, ...]
    """The address, or the program and its arguments."""
    name: str
    """The name that the server gives itself."""
    version: str = ""
    title: str = ""
    instructions: str = ""
    """The server's text for the LLM, which no LLM is shown."""
    tools: tuple[PinnedTool, ...] = ()
    """Sorted by name."""

    @cached_property
    def digest(self) -> str:
        """Digest of all fields, format `mcp-server/1`."""
        return digest(["mcp-server/1", self.model_dump(mode="json", exclude_defaults=True)])

    def pin_of(self, tool: PinnedTool) -> str:
        """Return the pin of one of its tools, format `mcp-tool/1`."""
        return digest(["mcp-tool/1", self.name, tool.definition])

    @cached_property
    def pins(self) -> dict[str, str]:
        """The pin of each tool, by name."""
        return {tool.name: self.pin_of(tool) for tool in self.tools}


class Difference(Frozen):
    """One difference between an accepted list and the offered one."""

    subject: str
    """The tool's name; empty for the server itself."""
    what: str
    """`added`, `removed`, or the fields that changed."""


def check_list(server: PinnedServer) -> None:
    """Reject a list that is too large or has no canonical JSON.

    Raises:
        ServerRejected: The list cannot be pinned; the message names the tool.
    """
    if len(server.tools) > MAX_TOOLS:
        raise ServerRejected(f"it lists more than {MAX_TOOLS} tools")
    for tool in server.tools:
        if why := tool.fault:
            raise ServerRejected(f"the definition of its tool {tool.name[:100]!r} cannot be pinned: {why}")
    if twice := [name for name, count in Counter(tool.name for tool in server.tools).items() if count > 1]:
        raise ServerRejected(f"it lists {twice[0][:100]!r} twice")
    head = server.model_dump(mode="json", exclude={"tools"})
    if why := unportable(head):
        raise ServerRejected(f"its description of itself holds {why}")
    if len(canonical(head)) + sum(len(canonical(tool.definition)) for tool in server.tools) > MAX_LIST_BYTES:
        raise ServerRejected(f"its list has more than {MAX_LIST_BYTES:,} bytes")


def differences(accepted: PinnedServer, offered: PinnedServer) -> list[Difference]:
    """Return how the offered list differs from the accepted one; empty if the digests are the same."""
    if accepted.digest == offered.digest:
        return []
    head = ("source", "name", "version", "title", "instructions")
    found = [Difference(subject="", what=name) for name in head if getattr(accepted, name) != getattr(offered, name)]
    before, now = _by_name(accepted.tools), _by_name(offered.tools)
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            found.append(Difference(subject=name, what="removed"))
        elif name not in before:
            found.append(Difference(subject=name, what="added"))
        elif changed := _changed(before[name], now[name]):
            found.append(Difference(subject=name, what=", ".join(changed)))
    return found


def _by_name(tools: Iterable[PinnedTool]) -> dict[str, PinnedTool]:
    return {tool.name: tool for tool in tools}


def _changed(before: PinnedTool, now: PinnedTool) -> list[str]:
    fields = PinnedTool.model_fields
    return [name for name in fields if canonical(_plain(before, name)) != canonical(_plain(now, name))]


def _plain(tool: PinnedTool, field: str) -> Any:
    return tool.model_dump(mode="json", include={field})


def offered_names(server: MCP, tools: Sequence[PinnedTool]) -> dict[str, str]:
    """Return the names under which the catalog offers a server's tools, by the server's own names.

    Characters that providers reject become `_`. A tool whose name is then too long, or that of another one, is left
    out: it would be unclear which of the two is called.
    """
    names = {tool.name: f"{server.prefix}{_FOREIGN.sub('_', tool.name)}" for tool in tools if server.offers(tool.name)}
    uses = Counter(names.values())
    return {own: name for own, name in names.items() if uses[name] == 1 and len(name) <= _NAME_CHARS}
