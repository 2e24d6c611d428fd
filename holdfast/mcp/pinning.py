"""Gives a catalog the tools of its MCP servers, as `mcp.lock` has them. Nothing here connects to a server, except to
trust one on first use in development.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from holdfast.config.extras import is_installed
from holdfast.config.programs import CLI, setup_command
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.tools.secrets import Secrets
from holdfast.errors import SettingsError
from holdfast.mcp.limits import NotConnected
from holdfast.mcp.lock_file import LOCK, read_lock, write_lock
from holdfast.mcp.pins import PinnedServer
from holdfast.mcp.tools import connected, provider_of, tools_of


def with_pinned_tools(catalog: Catalog, folder: Path, *, require: bool = True) -> Catalog:
    """Return the catalog with the tools that `mcp.lock` has of its MCP servers; without servers, the catalog itself.

    Args:
        catalog: The catalog.
        folder: The project's folder, which has the lock.
        require: Reject a server without a pin; otherwise its tools are left out.

    Raises:
        SettingsError: The packages are missing, the lock cannot be used, or a server is not in it.
        CatalogError: Names of tools collide, or an agent names one that its server does not have.
    """
    if all(server.pinned for server in catalog.mcp.values()):
        return catalog
    require_packages(catalog)
    lock = read_lock(folder / LOCK)
    missing = {name: why for name, server in catalog.mcp.items() if (why := _unpinned(server, lock, folder))}
    if missing and require:
        raise SettingsError("\n".join(missing.values()))
    return _pinned(catalog, {name: lock[name] for name in catalog.mcp if name not in missing})


def lock_folder(catalog: Catalog) -> Path:
    """Return the folder whose `mcp.lock` belongs to the catalog of a program.

    It is the current folder if that holds the program's file. Else it is the file's own: a program that is merely
    started in a folder must not take tools from there.
    """
    file = getattr(sys.modules.get(catalog.module), "__file__", None)
    here = Path.cwd()
    if file is None or Path(file).resolve().is_relative_to(here.resolve()):
        return here
    return Path(file).resolve().parent


def _pinned(catalog: Catalog, lock: Mapping[str, PinnedServer]) -> Catalog:
    servers = [replace(server, pinned=server.name in lock) for server in catalog.mcp.values()]
    tools = [tool for server in servers if server.pinned for tool in tools_of(server, lock[server.name])]
    return catalog.with_mcp(servers, tools, provider_of(servers))


def _unpinned(server: MCP, lock: Mapping[str, PinnedServer], folder: Path) -> str:
    accept = f"Accept its tools, and review the change of the file: {CLI.command('mcp', 'lock', server.name)}"
    if server.name not in lock:
        return f"The MCP server {server.name!r} is not in {folder / LOCK}. {accept}"
    if lock[server.name].source != server.source:
        return f"The MCP server {server.name!r} has another command or address than in {folder / LOCK}. {accept}"
    return ""


def require_packages(catalog: Catalog) -> None:
    """Reject a catalog with MCP servers if the packages that reach them are missing.

    Raises:
        SettingsError: They are; the message has the command that installs them.
    """
    if catalog.mcp and not is_installed("mcp"):
        raise SettingsError(f"The catalog has MCP servers, whose packages are missing: {setup_command('mcp')}")


async def trust_on_first_use(catalog: Catalog, folder: Path, secrets: Secrets) -> list[str]:
    """Write the tools of servers that `mcp.lock` does not have yet, in development; return a line for each server.

    A server that is in the lock stays as it is there, even if it has changed since.

    Raises:
        SettingsError: The packages are missing, the lock cannot be read or written, or a server cannot be reached.
    """
    if not catalog.mcp:
        return []
    require_packages(catalog)
    lock = read_lock(folder / LOCK)
    new = [server for server in catalog.mcp.values() if server.name not in lock]
    found = await read_lists(new, secrets)
    if found:
        write_lock(folder / LOCK, {**lock, **found})
    return [
        f"{name}: {len(pinned.tools)} tools trusted on first use, and written to {LOCK}; review that file"
        for name, pinned in found.items()
    ]


async def read_lists(servers: Iterable[MCP], secrets: Secrets) -> dict[str, PinnedServer]:
    """Connect to servers, and return their lists of tools as they are now, by name.

    Raises:
        SettingsError: A server cannot be reached, or its list cannot be pinned; the message names it.
    """
    listed = list(servers)
    try:
        async with connected(listed, secrets) as connections:
            return {server.name: await connections.to(server.name).offered() for server in listed}
    except NotConnected as error:
        raise SettingsError(secrets.redact(f"{error}.")) from None
