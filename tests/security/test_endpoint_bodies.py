"""An endpoint that floods, drips or redirects exhausts no worker's memory and gets no key."""

import asyncio
import gzip
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest
from temporalio.exceptions import ApplicationError

from holdfast import Agent, Catalog
from holdfast.activities.llm_calls.call_llm import LLM
from holdfast.activities.llm_calls.transcript_cache import CachedTranscript, ChooseRoute, TranscriptCache
from holdfast.core.agents.agent import Limits
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.endpoints import Endpoints
from holdfast.endpoints.http_client import MAX_BODY_BYTES, BodyTooLarge, http_client
from holdfast.storage.in_memory.record import InMemoryArtifacts
from tests.security.test_heartbeats import ORDER, attempt
from tests.support.runs import agent_spec

BOMB = 1_500_000_000
"""Bytes into which a bomb of about 1.5 MB of gzip decompresses."""

MEMORY_BYTES = 400_000_000
"""Bytes that reading it may add to a process: a few times `MAX_BODY_BYTES`, and a small part of the bomb."""


class Endpoint(BaseHTTPRequestHandler):
    """Responds to each path in a hostile way."""

    bodies: dict[str, tuple[int, dict[str, str], bytes]] = {}
    stopping = threading.Event()

    def do_POST(self) -> None:
        """Send the hostile response."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/drip"):
            self.send_response(200)
            self.end_headers()
            while not self.stopping.wait(0.05):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return
            return
        status, headers, body = self.bodies[self.path.split("/")[1]]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return

    def do_GET(self) -> None:
        """Respond at the target of a redirect."""
        self.do_POST()

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def endpoint(**bodies: tuple[int, dict[str, str], bytes]) -> Iterator[str]:
    """Serve these bodies by path during the block; yield the address."""
    stopping = threading.Event()
    kind = type("_Endpoint", (Endpoint,), {"bodies": bodies, "stopping": stopping})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()


def bomb(coding: str) -> bytes:
    """Return `BOMB` blanks, compressed. Only the final checksum is wrong, and no reader may get that far."""
    made = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    first, more = (made.compress(b" " * 10_000_000) + made.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + more * (BOMB // 10_000_000 - 1) + made.flush()


READER = """
import asyncio, resource, sys
from holdfast.endpoints.http_client import BodyTooLarge, http_client

async def read(url):
    async with http_client(url) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            await client.post(url, content=b"{}")
        except BodyTooLarge:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(read(sys.argv[1]))
"""


@pytest.mark.parametrize(("coding", "status"), [("gzip", 200), ("deflate", 400)])
def test_a_small_body_that_expands_to_gigabytes_takes_little_memory(coding: str, status: int) -> None:
    """It is decompressed piece by piece and abandoned at the limit, both as a reply and as an error."""
    headers = {"content-type": "application/json", "content-encoding": coding}
    with endpoint(bomb=(status, headers, bomb(coding))) as url:
        read = subprocess.run(
            [sys.executable, "-c", READER, f"{url}/bomb"], capture_output=True, text=True, timeout=100, check=True
        )
    assert int(read.stdout) * 1024 < MEMORY_BYTES


async def test_a_body_within_the_limit_is_read_whole() -> None:
    """As a control, a body at the limit is read, compressed and not; one more byte is too much."""
    text = b'{"x": "' + b"y" * 1_000_000 + b'"}'
    packed = gzip.compress(text)
    bodies = {
        "plain": (200, {"content-length": str(len(text))}, text),
        "packed": (200, {"content-encoding": "gzip", "content-length": str(len(packed))}, packed),
        "large": (200, {}, b" " * (MAX_BODY_BYTES + 1)),
    }
    with endpoint(**bodies) as url:
        async with http_client(url) as client:
            for path in ("plain", "packed"):
                response = await client.post(f"{url}/{path}", content=b"{}")
                assert (response.status_code, response.content) == (200, text)
            with pytest.raises(BodyTooLarge):
                await client.post(f"{url}/large", content=b"{}")


async def test_headers_are_bounded() -> None:
    """The parser rejects headers of more than about 100 kB."""
    with endpoint(headers=(200, {"x-long": "x" * 300_000}, b"{}")) as url:
        async with http_client(url) as client:
            with pytest.raises(Exception, match=r"Receive buffer too long|header"):
                await client.post(f"{url}/headers", content=b"{}")


class Empty(TranscriptCache):
    """An empty transcript of an agent with these limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    async def read(self, request: LLMRequest, choose: ChooseRoute) -> tuple[CachedTranscript, list[bytes]]:
        """Return the transcript."""
        spec = agent_spec(limits=self.limits)
        return CachedTranscript(0, spec, choose(spec), b'{"messages":['), []


async def error_of_call(url: str, limits: Limits) -> ApplicationError:
    """Call the LLM at an address, and return the error that Temporal gets."""
    direct = http_client(url)
    async with openai.AsyncOpenAI(api_key="hunter22", base_url=url, max_retries=0, http_client=direct) as client:
        catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.")])
        llm = LLM(Endpoints.only(client), catalog, Empty(limits), InMemoryArtifacts(), Secrets({}))
        with pytest.raises(ApplicationError) as raised:
            await attempt().run(llm.call_llm, ORDER)
    return raised.value


async def test_a_redirect_is_not_followed() -> None:
    """A redirect would send key and conversation elsewhere; the block names the target without its path."""
    bodies = {"api": (302, {"location": "/login?secret=1"}, b""), "login": (200, {}, b"<html>Log in</html>")}
    with endpoint(**bodies) as url:
        error = await error_of_call(f"{url}/api", Limits())
    assert (error.type, error.non_retryable) == (LLM_REJECTED, True)
    assert "redirects to 127.0.0.1" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_local_endpoint_bypasses_every_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment cannot reach this machine's loopback, and need not see that traffic."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with endpoint(here=(200, {}, b"{}")) as url:
        async with http_client(url) as client:
            assert (await client.post(f"{url}/here", content=b"{}")).status_code == 200


async def test_a_dripping_response_ends_with_the_time_limit_of_the_call() -> None:
    """Each read is short, but all of them together may take no longer than one call."""
    with endpoint() as url:
        async with asyncio.timeout(60):
            error = await error_of_call(f"{url}/drip", Limits(llm_timeout=0.5))
    assert (error.type, error.non_retryable) == ("APITimeoutError", False)
    assert "no whole response within 0.5 s" in error.message
