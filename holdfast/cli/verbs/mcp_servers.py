"""Verbs for MCP: mcp lock, mcp diff and mcp show for the tools of foreign servers; mcp serve to be a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import By, Verbs
from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.core.agents.catalog import Catalog as AgentCatalog
    from holdfast.core.agents.mcp_servers import MCP
    from holdfast.core.tools.secrets import Secrets
    from holdfast.mcp.pins import PinnedServer

Servers = Annotated[
    list[str] | None, typer.Argument(metavar="[SERVER]...", help="Names of servers. [default: all of the catalog]")
]
Catalog = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:ATTRIBUTE", help="The catalog that declares the servers; imported. [default: HOLDFAST_CATALOG]"
    ),
]

verbs = Verbs(under="mcp", help="Accept the tools of MCP servers in mcp.lock, or serve agents to MCP clients.")


@verbs.verb("mcp lock --catalog agents:catalog", "mcp lock github --catalog agents:catalog", local=True)
async def lock(session: Session, servers: Servers = None, catalog: Catalog = None) -> int:
    """Accept the tools that servers offer now, and write them to mcp.lock in the current folder.

    It shows what changes. Review the file like a lock of dependencies, and commit it.
    """
    from holdfast.cli.screens.mcp_screens import differences_screen
    from holdfast.mcp.lock_file import LOCK, write_lock
    from holdfast.mcp.pinning import read_lists
    from holdfast.mcp.pins import differences

    declared, secrets = _declared(session, catalog)
    path = Path.cwd() / LOCK
    accepted = _usable(path, servers)
    found = await read_lists(_chosen(declared, servers), secrets)
    changes = {name: differences(accepted[name], now) if name in accepted else None for name, now in found.items()}
    kept = {name: server for name, server in {**accepted, **found}.items() if name in declared}
    if kept != accepted or not path.exists():
        write_lock(path, kept)
    view = {"file": str(path), "servers": {name: now.digest for name, now in found.items()}}
    view["removed"] = sorted(accepted.keys() - kept.keys())
    session.output.result(view, differences_screen(found, changes, accepted))
    return OK


@verbs.verb("mcp diff --catalog agents:catalog", "mcp diff github --json --catalog agents:catalog", local=True)
async def diff(session: Session, servers: Servers = None, catalog: Catalog = None) -> int:
    """Compare the tools that servers offer now with mcp.lock. Exit code 1 if they differ."""
    from holdfast.cli.screens.mcp_screens import differences_screen
    from holdfast.mcp.lock_file import LOCK, read_lock
    from holdfast.mcp.pinning import read_lists
    from holdfast.mcp.pins import differences

    declared, secrets = _declared(session, catalog)
    accepted = read_lock(Path.cwd() / LOCK)
    found = await read_lists(_chosen(declared, servers), secrets)
    changes = {name: differences(accepted[name], now) if name in accepted else None for name, now in found.items()}
    view = {
        name: [each.model_dump() for each in changed] if changed is not None else "not in the lock"
        for name, changed in changes.items()
    }
    session.output.result({"differences": view}, differences_screen(found, changes, accepted))
    return OK if all(changed == [] for changed in changes.values()) else FAILED


@verbs.verb("mcp show --catalog agents:catalog", "mcp show github --catalog agents:catalog", local=True)
async def show(session: Session, servers: Servers = None, catalog: Catalog = None) -> int:
    """Show the accepted tools: their names in the catalog, their effects, and the hints of their servers.

    It connects to no server. The hints decide nothing.
    """
    from holdfast.cli.screens.mcp_screens import servers_screen
    from holdfast.mcp.lock_file import LOCK, read_lock
    from holdfast.mcp.pins import offered_names

    declared, _ = _declared(session, catalog, needs_secrets=False)
    accepted = read_lock(Path.cwd() / LOCK)
    chosen = [server for server in _chosen(declared, servers) if server.name in accepted]
    view = {}
    for server in chosen:
        pinned = accepted[server.name]
        names = offered_names(server, pinned.tools)
        view[server.name] = {
            "digest": pinned.digest,
            "version": pinned.version,
            "tools": [
                {
                    "name": names.get(tool.name),
                    "tool": tool.name,
                    "effect": server.effect_of(tool.name).value,
                    "hints": tool.annotations,
                    "pin": pinned.pin_of(tool),
                }
                for tool in pinned.tools
            ],
        }
    session.output.result({"servers": view}, servers_screen(chosen, accepted))
    return OK


@verbs.verb("mcp serve support --catalog agents:catalog")
async def serve(
    session: Session,
    agents: Annotated[list[str], typer.Argument(metavar="AGENT...", help="The agents to expose, and no others.")],
    by: By = None,
    decide: Annotated[
        bool, typer.Option("--decide", help="Let people decide requests in the client, in your name.")
    ] = False,
) -> int:
    """Serve agents to one MCP client over stdin and stdout, in your name. Clients start this command.

    The agents run on the workers. The catalog, which is imported, gives the types of their contexts and results.
    """
    from holdfast.config.extras import is_installed
    from holdfast.config.programs import setup_command
    from holdfast.errors import SettingsError

    for extra in ("gateway", "mcp"):
        if not is_installed(extra):
            raise SettingsError(f"Packages are missing for `mcp serve`: {setup_command(extra)}")
    from holdfast.config.policy_file import load_policy
    from holdfast.gateway.mcp.exposed import expose
    from holdfast.gateway.mcp.stdio import serve_stdio
    from holdfast.gateway.page.links import request_page

    policy = load_policy(session.settings.policy) if session.settings.policy else None
    exposed = expose(_catalog(session, None), agents, policy=policy)
    threads = await session.connect()
    parts = session.parts
    await serve_stdio(
        threads,
        exposed,
        by=session.person(by),
        may_decide=decide,
        artifacts=await parts.artifacts(),
        page_of=request_page(session.settings.gateway_url, ui=parts.ui, namespace=threads.runs.client.namespace),
    )
    return OK


def _declared(session: Session, catalog: str | None, *, needs_secrets: bool = True) -> "tuple[dict[str, MCP], Secrets]":
    """Return the servers of the catalog by name, and their secrets."""
    from holdfast.core.agents.required_secrets import read_secrets
    from holdfast.core.tools.secrets import NO_SECRETS
    from holdfast.mcp.pinning import require_packages
    from holdfast.mcp.tools import provider_of

    loaded = _catalog(session, catalog)
    require_packages(loaded)
    secrets = read_secrets([provider_of(loaded.mcp.values())], session.environ) if needs_secrets else NO_SECRETS
    return dict(loaded.mcp), secrets


def _catalog(session: Session, reference: str | None) -> "AgentCatalog":
    """Import the catalog that the option or the environment names: a project's files do not name it."""
    from holdfast.config.loading import load
    from holdfast.core.agents.catalog import Catalog
    from holdfast.errors import SettingsError

    reference = reference or session.environ.get("HOLDFAST_CATALOG", "").strip()
    if not reference:
        raise SettingsError(
            "Name the catalog, which is imported here: --catalog MODULE:ATTRIBUTE, or HOLDFAST_CATALOG."
        )
    return load(reference, Catalog)


def _chosen(declared: "dict[str, MCP]", names: list[str] | None) -> "list[MCP]":
    from holdfast.errors import SettingsError

    if unknown := [name for name in names or () if name not in declared]:
        known = ", ".join(declared) or "none"
        raise SettingsError(f"The catalog has no MCP server {unknown[0]!r}; it has: {known}.")
    return [server for name, server in declared.items() if not names or name in names]


def _usable(path: Path, names: list[str] | None) -> "dict[str, PinnedServer]":
    """Return the accepted servers. A lock that cannot be used is written anew, but only as a whole."""
    from holdfast.errors import SettingsError
    from holdfast.mcp.lock_file import read_lock

    try:
        return read_lock(path)
    except SettingsError:
        if names:
            raise
        return {}
