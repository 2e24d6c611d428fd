"""Opens the resources of a catalog when a worker starts, each once, and closes them when it has ended."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from holdfast.config.logs import EventLogger
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.providers import Provider
from holdfast.core.tools.results import error_text
from holdfast.core.tools.secrets import Secrets
from holdfast.errors import ResourceFailed

OPEN_SECONDS = 60.0
"""How long a provider may take to open its resource."""

CLOSE_SECONDS = 10.0
"""How long a provider may take to close it."""

log = EventLogger("worker")


@asynccontextmanager
async def open_resources(catalog: Catalog, secrets: Secrets) -> AsyncIterator[Mapping[Any, Any]]:
    """Open the catalog's resources for a block, each after those that it needs, and close them in reverse order.

    Args:
        catalog: Its providers are called.
        secrets: Passed to the providers that declare them.

    Yields:
        The resources, by type.

    Raises:
        ResourceFailed: A provider raised, or took too long; those opened before it are closed.
    """
    if unpinned := [server.name for server in catalog.mcp.values() if not server.pinned]:
        raise ResourceFailed(f"the tools of the MCP servers {', '.join(unpinned)} are not accepted: holdfast mcp lock")
    opened: dict[Any, Any] = {}
    async with AsyncExitStack() as cleanup:
        for kind, provider in catalog.resources.items():
            arguments = {name: opened[need] for name, need in provider.needs.items() if need is not Secrets}
            arguments |= {
                name: secrets.only(provider.secrets) for name, need in provider.needs.items() if need is Secrets
            }
            limit = asyncio.timeout(OPEN_SECONDS)
            try:
                async with limit:
                    opened[kind] = await _open(provider, arguments, cleanup)
                if opened[kind] is None:
                    raise TypeError("it provides None; return the resource, or yield it")
            except Exception as error:
                reason = f"it took longer than {OPEN_SECONDS:g} s" if limit.expired() else error_text(error)
                raise ResourceFailed(f"{provider.where} could not be opened: {secrets.redact(reason)}") from error
        yield opened


async def _open(provider: Provider, arguments: dict[str, Any], cleanup: AsyncExitStack) -> Any:
    """Call the provider, and register the cleanup of its resource."""
    result = provider.function(**arguments)
    if provider.lifetime == "value":
        return await result if inspect.isawaitable(result) else result
    if provider.lifetime == "sync":
        value = result.__enter__()
        cleanup.push_async_callback(_close, provider, partial(_exit, result))
    else:
        value = await result.__aenter__()
        cleanup.push_async_callback(_close, provider, lambda: result.__aexit__(None, None, None))
    return value


async def _exit(manager: AbstractContextManager[Any]) -> None:
    """Leave a sync context manager in the thread that entered it: its resource may belong to that thread."""
    manager.__exit__(None, None, None)


async def _close(provider: Provider, close: Callable[[], Awaitable[Any]]) -> None:
    """Close a resource. An error is only logged, so that the others are closed, too."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await close()
    except Exception as error:
        log.warning("resource_not_closed", resource=provider.name, reason=error_text(error))
