"""A gateway under load from unknown callers, one persistent caller, and unwanted bodies."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import product
from typing import Any

import httpx2
import pytest

from holdfast.config.encryption_keys import parse_keys
from holdfast.encryption.codec import EncryptionCodec
from holdfast.gateway.http.connections import CONNECTIONS, HEADER_SECONDS
from holdfast.gateway.http.limits import UNKNOWN_BYTES
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import ADDRESSES, Quota, Quotas, address_of
from tests.integration.test_gateway import TRUSTING, bearer, site
from tests.support.rig import PATIENCE, StartRig


@pytest.fixture
async def url(rig: StartRig) -> AsyncIterator[str]:
    """Run a gateway with its own limits, and no run behind it."""
    async with site(rig, slack_secret="of the Slack app", codec=_codec(), ui="http://ui.example") as gateway:
        yield str(gateway.http.base_url)


def _codec() -> EncryptionCodec:
    return EncryptionCodec(parse_keys(f"one:{base64.b64encode(bytes(32)).decode()}"))


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(url: str) -> Pair:
    """Open a raw connection."""
    host, _, port = url.partition("://")[2].strip("/").rpartition(":")
    return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def half_open(url: str, count: int, start: bytes) -> AsyncIterator[list[Pair]]:
    """Open connections that have each sent the start of a request, and never its end."""
    pairs: list[Pair] = []
    try:
        for _ in range(count):
            pair = await connect(url)
            pair[1].write(start)
            pairs.append(pair)
        yield pairs
    finally:
        for _, writer in pairs:
            writer.close()


async def answers(url: str, path: str = "/health", *, fresh: int = 20) -> list[int]:
    """Return the responses that a caller with a token gets on new connections."""
    responses = []
    for _ in range(fresh):
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=120) as http:
            responses.append((await http.get(path, headers=bearer("of-dashboard"))).status_code)
    return responses


async def closed(pair: Pair) -> bool:
    """Return whether the other side has closed the connection."""
    with suppress(ConnectionError):
        async with asyncio.timeout(0.1):
            while data := await pair[0].read(65_536):
                del data
    return pair[0].at_eof() or pair[0].exception() is not None


@pytest.mark.extended
async def test_a_thousand_unfinished_requests_block_nobody(url: str) -> None:
    """While 1,000 connections send nothing, half a header or half a body, a caller with a token gets every response."""
    starts = [b"", b"GET /pending HTTP/1.1\r\nHost: x\r\n"]
    starts.append(b"POST /pending HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
    async with AsyncExitStack() as opened, asyncio.timeout(PATIENCE):
        for start in starts:
            await opened.enter_async_context(half_open(url, 334, start))
        assert await answers(url, "/threads/nobody-knows-this") == [404] * 20


async def test_slow_headers_time_out(url: str) -> None:
    """Sending a byte now and then does not extend the timeout, even after a completed request."""

    async def send_slowly(pair: Pair) -> None:
        with suppress(ConnectionError):
            while not pair[0].at_eof():
                pair[1].write(b"X-Header: x\r\n")
                await pair[1].drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(pair[0].read(10_000), HEADER_SECONDS / 16)
        pair[1].close()

    fresh, used = await connect(url), await connect(url)
    used[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await used[0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    for pair in (fresh, used):
        pair[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    async with asyncio.timeout(PATIENCE):  # both are closed
        await asyncio.gather(send_slowly(fresh), send_slowly(used))


async def test_unauthenticated_bodies_are_not_read(url: str) -> None:
    """A caller without a valid token is rejected after a few bytes, whatever length the headers declare."""
    paths = ("/threads/x/decisions", "/threads", "/codec/decode", "/nothing", "/slack/actions")
    credentials = ("", "Authorization: Bearer wrong\r\n", "Holdfast-Signature: x\r\n")
    for path, headers in product(paths, credentials):
        reader, writer = await connect(url)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 15000000\r\n\r\n".encode())
        sent = 0
        status = asyncio.ensure_future(reader.readline())
        with suppress(ConnectionError):
            while not status.done() and sent < 2 * UNKNOWN_BYTES:
                writer.write(b"x" * 8_192)
                await writer.drain()
                sent += 8_192
                await asyncio.sleep(0.005)
        first = (await asyncio.wait_for(status, PATIENCE)).decode()  # one that reads the body waits for the rest of it
        writer.close()
        assert first.split()[1] in ("401", "404", "413"), first
        if path != "/slack/actions":  # Slack signs the body, so a little of it must be read
            assert first.split()[1] != "413"


async def test_a_large_request_head_is_rejected(url: str) -> None:
    """Path, query and headers have a limit, even if all of them arrive at once."""
    heads: list[tuple[str, tuple[int, ...]]] = [
        (f"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: {'x' * 70_000}\r\n\r\n", (431, 400)),
        (f"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: {'x' * 17_000}\r\n\r\n", (431, 400)),
        (f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'x' * 17_000}\r\n\r\n", (431, 400)),
        ("GET /health HTTP/1.1\r\nHost: x\r\n" + "X: y\r\n" * 150 + "\r\n", (431,)),
        (f"GET /threads?cursor={'x' * 9_000} HTTP/1.1\r\nHost: x\r\n\r\n", (414,)),
        (f"GET /threads/{'x' * 9_000} HTTP/1.1\r\nHost: x\r\n\r\n", (414,)),
    ]
    for head, status in heads:
        reader, writer = await connect(url)
        writer.write(head.encode())
        first = (await asyncio.wait_for(reader.readline(), PATIENCE)).decode()
        writer.close()
        assert int(first.split()[1]) in status, (head[:60], first)


async def test_slow_bodies_of_unknown_callers_are_limited(url: str) -> None:
    """If authentication needs the body, an address may have only a few of them in progress."""
    start = b"POST /slack/actions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    with_token = b"POST /slack/actions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 9\r\n\r\n{"
    async with half_open(url, 25, start) as plain, half_open(url, 25, with_token) as wrong:
        firsts, refused = [asyncio.create_task(reader.readline()) for reader, _ in plain + wrong], 0
        async with asyncio.timeout(PATIENCE):
            for answer in asyncio.as_completed(firsts):
                refused += b" 429 " in await answer
                if refused == 30:
                    break
        assert refused == 30
        for first in firsts:
            first.cancel()
        assert await answers(url, "/threads/nobody-knows-this", fresh=3) == [404] * 3


@pytest.mark.extended
async def test_one_token_that_follows_everything_leaves_room_for_another(rig: StartRig) -> None:
    """Of more streams than its share, a token gets its share, and another one follows, reads and decides as before."""
    async with site(rig) as gateway, AsyncExitStack() as streams:
        run, request = await gateway.waiting()
        path = gateway.path(run.id, "/events")
        statuses = []
        async with httpx2.AsyncClient(
            base_url=gateway.http.base_url, trust_env=False, timeout=120, limits=httpx2.Limits(max_connections=None)
        ) as greedy:
            for _ in range(24):
                answer = await streams.enter_async_context(greedy.stream("GET", path, headers=bearer("of-dashboard")))
                statuses.append(answer.status_code)
            assert statuses.count(200) == 16
            assert statuses.count(429) == 8

            async with gateway.http.stream("GET", path, headers=bearer("of-alice")) as other:
                assert other.status_code == 200
                assert await answers(str(gateway.http.base_url), gateway.path(run.id), fresh=3) == [200] * 3
                decision = {"decision": "approve", "request": request["request"], "digest": request["digest"]}
                assert (await gateway.decide(run.id, decision, "of-alice")).status_code == 200
            await streams.aclose()


async def test_one_token_that_asks_all_the_time_leaves_room_for_another(rig: StartRig) -> None:
    """Beyond its rate a caller gets 429 with a delay; another caller is unaffected."""
    async with limited(rig, each_caller=Quota(at_once=4, a_second=0.001, burst=10)) as http:
        asked = [http.get("/threads/x", headers=bearer("of-dashboard")) for _ in range(100)]
        answered = await asyncio.gather(*asked)
        refused = [answer for answer in answered if answer.status_code == 429]
        assert len(refused) >= 80
        assert {answer.headers["Retry-After"] for answer in refused} == {"5"}
        assert "more than" in refused[0].json()["detail"]
        assert (await http.get("/threads/x", headers=bearer("of-carol"))).status_code == 404


async def test_guessing_tokens_is_slow_and_affects_nobody_else(rig: StartRig) -> None:
    """An address that sends wrong tokens gets 429 after a few; valid ones from the same address still work."""
    async with limited(rig, each_address=Quota(at_once=16, a_second=0.001, burst=10)) as http:
        guesses = [(await http.get("/pending", headers=bearer(f"guess-{n}"))).status_code for n in range(30)]
        assert guesses.count(401) <= 13
        assert guesses.count(429) >= 17
        assert (await http.get("/health")).status_code == 429
        assert (await http.get("/threads/x", headers=bearer("of-carol"))).status_code == 404


@asynccontextmanager
async def limited(rig: StartRig, **shares: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of a gateway with smaller shares."""
    async with site(rig, TRUSTING, **shares) as gateway:
        yield gateway.http


def test_the_flood_exceeds_the_limit_of_connections() -> None:
    """The gateway keeps fewer than 1,000 connections, so the test above can fail."""
    assert CONNECTIONS < 1_000


def test_state_about_callers_is_bounded() -> None:
    """A million addresses use bounded memory; addresses of one IPv6 network count as one."""
    shares = Quotas(Quota(at_once=1, a_second=1, burst=1), now=lambda: 0.0)
    for number in range(ADDRESSES + 500):
        shares.take(str(number))
    assert len(shares._left) == ADDRESSES
    with pytest.raises(HTTPProblem):
        shares.take(str(ADDRESSES + 499))
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::ffff", 2)) == "2001:db8::/64"
    assert address_of(("10.0.0.1", 1)) != address_of(("10.0.0.2", 1))


def test_a_share_is_restored_with_time() -> None:
    """After a quiet period a caller has its full burst again, and never more."""
    at = [0.0]
    shares = Quotas(Quota(at_once=1, a_second=2, burst=4), now=lambda: at[0])

    def taken() -> int:
        for count in range(100):
            try:
                shares.take("alice")
            except HTTPProblem:
                return count
        return 100

    assert taken() == 4
    at[0] += 1
    assert taken() == 2
    at[0] += 1_000
    assert taken() == 4
