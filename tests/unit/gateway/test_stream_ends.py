"""How a stream of server-sent events ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.http.serving import Server, listen
from holdfast.gateway.stream import EventStream


async def test_nothing_is_sent_after_the_follower_may_have_no_more() -> None:
    """Neither what was read ahead before nor a comment in a silent thread: the stream ends."""
    frames, sent = asyncio.Queue[str](), list[bytes]()
    followers = Slots("streams", 1, 1)

    async def read() -> AsyncIterator[str]:
        while True:
            yield await frames.get()

    async def send(part: Any) -> None:
        sent.append(part.get("body", b""))

    def is_open() -> bool:
        return not any(b"first" in each for each in sent)

    async def receive() -> Any:
        await asyncio.Event().wait()

    for more in (("data: first\n\n", "data: second\n\n"), ("data: first\n\n",)):
        sent.clear()
        followers.acquire("ann")
        for each in more:
            frames.put_nowait(each)
        stream = EventStream(read(), "t", followers=followers, caller="ann", keep_alive=0.01, is_open=is_open)
        await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        assert b"".join(sent).endswith(b"data: first\n\n")


async def test_an_open_page_does_not_delay_the_end_of_the_server() -> None:
    """A stream whose follower reconnects by itself ends, complete, when the server stops."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        followers = Slots("streams", 1, 1)
        followers.acquire("ann")
        endless = _one_and_silence()
        await EventStream(endless, "t", followers=followers, caller="ann", resumes=True)(scope, receive, send)

    listening = listen("127.0.0.1", 0)
    server = Server(app)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with httpx2.AsyncClient(trust_env=False) as http, http.stream("GET", url) as answer:
        received = ""
        async for text in answer.aiter_text():  # would raise if the server cut it
            received += text
            if "data: 1" in received:
                server.stop()
        await serving


async def _one_and_silence() -> AsyncIterator[str]:
    yield "data: 1\n\n"
    await asyncio.Event().wait()
