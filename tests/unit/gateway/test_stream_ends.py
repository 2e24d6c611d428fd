"""How a stream of server-sent events ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httpx2
import pytest

from holdfast.client.threads import Threads
from holdfast.gateway.http.limits import STREAMS
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.http.serving import Server, listen
from holdfast.gateway.routes import results
from holdfast.gateway.stream import STOPPING, EventStream, problem_frame


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


async def test_no_follower_delays_the_end_of_the_server() -> None:
    """Each stream ends, complete, when the server stops, and says so in the words of its protocol: no client takes that
    for the end of the thread, and one that has the last id continues after it.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        followers = Slots("streams", 1, 1)
        followers.acquire("ann")
        problem = _failed if scope["path"] == "/feed" else problem_frame
        await EventStream(_one_and_silence(), "t", followers=followers, caller="ann", problem=problem)(
            scope, receive, send
        )

    for path, end in {
        "/events": f'event: problem\ndata: {{"detail": "{STOPPING}"}}\n\n',
        "/feed": f"data: failed, {STOPPING}\n\n",
    }.items():
        listening = listen("127.0.0.1", 0)
        server = Server(app)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
        async with httpx2.AsyncClient(trust_env=False) as http, http.stream("GET", url) as answer:
            received = ""
            async for text in answer.aiter_text():  # would raise if the server cut it
                received += text
                if "data: 1" in received:
                    server.stop()
            await serving
        assert received == ": following\n\ndata: 1\n\n" + end


async def test_no_wait_for_a_result_delays_the_end_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with what is known: its caller repeats it, as after any wait."""
    waits, ends = asyncio.Event(), set[Callable[[], object]]()

    async def wait(*given: Any, **more: Any) -> Any:
        waits.set()
        await asyncio.Event().wait()

    async def look(*given: Any, **more: Any) -> Any:
        return "as it is"

    monkeypatch.setattr(results, "wait", wait)
    monkeypatch.setattr(results, "look", look)
    waiting = asyncio.create_task(
        results.wait_for(cast(Threads, None), "t", "end", 300, scope={"state": {STREAMS: ends}})
    )
    await waits.wait()
    for end in tuple(ends):
        end()
    assert str(await asyncio.wait_for(waiting, 10)) == "as it is"
    assert ends == set()


async def _one_and_silence() -> AsyncIterator[str]:
    yield "data: 1\n\n"
    await asyncio.Event().wait()


def _failed(detail: str) -> str:
    return f"data: failed, {detail}\n\n"
