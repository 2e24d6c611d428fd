"""The page of `worker --dev`: served by the worker's own process, for the person who started it.

It needs the extra `gateway`. Nobody has a token: a link that is printed signs in one browser, once, and then the next
link is printed.
"""

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import socket
from typing import TYPE_CHECKING, get_args

from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.config.extras import is_installed
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.gateway.http.limits import Limits
    from holdfast.gateway.page.sessions import Sessions

HOST = "127.0.0.1"


class DevelopmentPage:
    """The page of one worker, on this machine: on the gateway's port, or on any free one."""

    def __init__(self) -> None:
        self._socket: socket | None = None

    @contextmanager
    def reserve(self, settings: Settings) -> Iterator[str | None]:
        """Take a port for a block, before runs begin; yield the page's address for links, or None if it has none.

        The address of a port that happened to be free is not for links: they are recorded in runs, and after a restart
        another program may have the port. The address alone signs nobody in.
        """
        if not is_installed("gateway"):
            yield None
            return
        from holdfast.gateway.http.serving import listen

        own = settings.gateway_port != 0
        try:
            self._socket = listen(HOST, settings.gateway_port)
        except SettingsError:  # a gateway, or another project's worker
            self._socket, own = listen(HOST, 0), False
        with self._socket:
            yield self._url if own else None

    @property
    def _url(self) -> str:
        assert self._socket is not None  # reserved
        return f"http://{HOST}:{self._socket.getsockname()[1]}"

    @asynccontextmanager
    async def serve(self, parts: Components, say: Callable[[str], None]) -> AsyncIterator[None]:
        """Serve the page for a block, on the port that was taken.

        Args:
            parts: Of the worker's process.
            say: Prints a line for people.
        """
        if self._socket is None:
            say("Page       pip install 'holdfast-agents[gateway]' adds a page to decide and watch on")
            yield
            return
        from holdfast.config.page_links import PREFIX
        from holdfast.gateway.callers import Caller, Scope
        from holdfast.gateway.http.serving import Server
        from holdfast.gateway.page.sessions import SESSION_SECONDS, Sessions

        scopes = tuple(scope for scope in get_args(Scope) if scope != "codec")
        person = Caller(parts.settings.by or _login(), scopes)

        def print_link() -> None:
            secret = sessions.make_link(person, seconds=SESSION_SECONDS)
            say(f"Page       {self._url}{PREFIX}/sign-in?link={secret}    (signs in one browser as {person.name})")

        sessions = Sessions(on_link_used=print_link)
        server = Server(await _gateway(parts, self._url, sessions))
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        print_link()
        try:
            yield
        finally:
            server.stop()
            with suppress(asyncio.CancelledError):
                await serving


async def _gateway(parts: Components, url: str, sessions: "Sessions") -> "Limits":
    """Build the gateway, which nobody reaches but through the page: there are no tokens."""
    from holdfast.composition.witnesses import witnesses_of
    from holdfast.config.policy_file import load_policy
    from holdfast.doctor.own import OwnChecks
    from holdfast.gateway.app import build_app
    from holdfast.gateway.callers import Callers, CallersFile

    settings = parts.settings
    threads = Threads(
        await parts.client(),
        task_queue=settings.task_queue,
        answer_within=settings.answer_seconds,
        record=parts.threads(),
    )
    stores = await parts.stores()
    return build_app(
        threads,
        Callers(CallersFile(), load_policy(settings.policy) if settings.policy else None),
        audience=url,
        page=url,
        sessions=sessions,
        evidence=await parts.evidence(),
        anchors=witnesses_of(settings),
        memories=stores.memories,
        checks=OwnChecks(settings, parts.config),
        hub=await parts.hub(),
    )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "developer"
