"""The page of `worker --dev`: served by the worker's own process, for the person who started it.

It needs the extra `gateway`. Nobody has a token: a link that is printed signs in one browser, once, and then the next
link is printed.
"""

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import get_args

from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.config.extras import is_installed
from holdfast.errors import SettingsError

HOST = "127.0.0.1"


@asynccontextmanager
async def serving_page(parts: Components, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Serve the page on this machine for a block: on the gateway's port, or on any free one.

    Args:
        parts: Of the worker's process.
        say: Prints a line for people.
    """
    if not is_installed("gateway"):
        say("Page       pip install 'holdfast-agents[gateway]' adds a page to decide and watch on")
        yield
        return
    from holdfast.composition.witnesses import witnesses_of
    from holdfast.config.page_links import PREFIX
    from holdfast.config.policy_file import load_policy
    from holdfast.doctor.own import OwnChecks
    from holdfast.gateway.app import build_app
    from holdfast.gateway.callers import Caller, Callers, CallersFile, Scope
    from holdfast.gateway.http.serving import Server, listen
    from holdfast.gateway.page.sessions import SESSION_SECONDS, Sessions

    settings = parts.settings
    try:
        socket = listen(HOST, settings.gateway_port)
    except SettingsError:  # a gateway, or another project's worker
        socket = listen(HOST, 0)
    url = f"http://{HOST}:{socket.getsockname()[1]}"
    person = Caller(settings.by or _login(), tuple(scope for scope in get_args(Scope) if scope != "codec"))

    def print_link() -> None:
        secret = sessions.make_link(person, seconds=SESSION_SECONDS)
        say(f"Page       {url}{PREFIX}/sign-in?link={secret}    (signs in one browser as {person.name})")

    sessions = Sessions(on_link_used=print_link)
    threads = Threads(
        await parts.client(),
        task_queue=settings.task_queue,
        answer_within=settings.answer_seconds,
        record=parts.threads(),
    )
    callers = Callers(CallersFile(), load_policy(settings.policy) if settings.policy else None)
    stores = await parts.stores()
    server = Server(
        build_app(
            threads,
            callers,
            audience=url,
            page=url,
            sessions=sessions,
            evidence=await parts.evidence(),
            anchors=witnesses_of(parts.settings),
            memories=stores.memories,
            checks=OwnChecks(settings, parts.config),
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    print_link()
    try:
        yield
    finally:
        server.stop()
        with suppress(asyncio.CancelledError):
            await serving


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "developer"
