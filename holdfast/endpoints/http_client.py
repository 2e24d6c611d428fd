"""The HTTP client of the LLM endpoint: its responses are bounded, and its errors name the faulty setting.

1. A body is read up to `MAX_BODY_BYTES`, counted after decompression, which takes place in pieces of a megabyte: a few
   megabytes of gzip can hold gigabytes.
2. No redirect is followed: the request has the key and the conversation, and a login page is not an LLM.
3. A loopback address is reached directly, even if the environment names a proxy.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

import httpx2
import openai

from holdfast.errors import SettingsError

MAX_BODY_BYTES = 24_000_000
"""Largest body of a response, decompressed. The longest replies, with reasoning and an image in base64, have a few
megabytes; 16 embeddings have one. Parsed JSON takes some ten times as much memory."""

MAX_STREAM_BYTES = 96_000_000
"""The same for a stream of events, in which each token takes some 200 bytes."""

PAUSE_SECONDS, PAUSE_SHARE = 0.05, 0.04
"""After it has waited for a piece of a stream, a client pauses for this long, or for this share of the stream's time so
far if that is shorter: a read of all tokens that arrive meanwhile costs about as much as a read of one."""

WAIT_SECONDS = 0.001
"""A piece that took no longer than this came with the one before."""

stream_watch: ContextVar[Callable[[bytes], None] | None] = ContextVar("stream_watch", default=None)
"""Called with each piece of a successful response that is a stream of events, as it arrives. It must not raise."""

_TLS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


class BodyTooLarge(httpx2.RequestError):
    """The body of a response is larger than `MAX_BODY_BYTES`."""


class BoundedClient(httpx2.AsyncClient):
    """A client that reads each response whole, up to `MAX_BODY_BYTES`."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, and read the whole response.

        Raises:
            BodyTooLarge: The response is too large.
        """
        response = await super().send(request, stream=True, **options)
        body = bytearray()
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        most = MAX_STREAM_BYTES if events else MAX_BODY_BYTES
        watch = stream_watch.get() if events and response.status_code == 200 else None
        began = done = time.monotonic()
        try:
            async for piece in response.aiter_bytes():
                arrived = time.monotonic()
                body += piece
                if watch is not None:
                    watch(piece)
                if len(body) > most:
                    why = f"the response has more than {most:,} bytes, so it was not read to its end"
                    raise BodyTooLarge(why, request=request)
                if events and arrived - done > WAIT_SECONDS:
                    await asyncio.sleep(min(PAUSE_SECONDS, PAUSE_SHARE * (arrived - began)))
                done = time.monotonic()
        finally:
            await response.aclose()
        plain = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_TRANSFER]
        read = httpx2.Response(
            response.status_code,
            headers=plain,
            content=bytes(body),
            request=request,
            extensions=response.extensions,
            history=response.history,
        )
        read.elapsed = response.elapsed
        return read


_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")
"""Headers about the transferred bytes, not about their content."""


def http_client(base_url: str) -> httpx2.AsyncClient:
    """Return a client for an endpoint.

    Args:
        base_url: The endpoint's address.

    Raises:
        SettingsError: A variable for TLS or proxies is wrong; the message names it.
    """
    url = httpx2.URL(base_url)
    local = is_loopback(url.host)
    # Loading the system's certificates takes 50 ms; an address without TLS needs none.
    bare = local and url.scheme == "http"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if bare else _context()
    try:
        return BoundedClient(
            verify=context,
            trust_env=not local,
            follow_redirects=False,
            timeout=openai.DEFAULT_TIMEOUT,
            limits=openai.DEFAULT_CONNECTION_LIMITS,
        )
    except ImportError:
        names = _set_variables(_PROXIES, only="socks")
        raise SettingsError(
            f"{names} names a SOCKS proxy, for which a package is missing: install it with `pip install socksio`, or "
            f"unset {names}, or except the endpoint in NO_PROXY."
        ) from None
    except (ValueError, httpx2.InvalidURL):  # its text has the URL, which may have a password
        names = _set_variables(_PROXIES)
        raise SettingsError(
            f"{names} is no proxy that can be used: write it as http://host:port or socks5://host:port, or unset it."
        ) from None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    name = host.strip("[]").rstrip(".").casefold()
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _context() -> ssl.SSLContext:
    """Load the trusted certificates: those that the environment names, or the system's."""
    folders = os.environ.get("SSL_CERT_DIR", "")
    if folders and not os.environ.get("SSL_CERT_FILE") and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise SettingsError(f"SSL_CERT_DIR={folders} is no folder. Correct the path, or unset the variable.")
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # `ssl.SSLError` is one
        settings = [f"{name}={os.environ[name]}" for name in _TLS if os.environ.get(name)]
        raise SettingsError(
            f"{' or '.join(settings) or 'the certificate store of the system'} cannot be read: "
            f"{error.strerror or error}. "
            "Name a file of certificates in PEM, or unset the variable."
        ) from None


def _set_variables(names: Iterable[str], *, only: str = "") -> str:
    """Return the variables of these names that are set, in the spelling used."""
    spelled = [each for name in names for each in (name, name.lower()) if os.environ.get(each, "").startswith(only)]
    return " or ".join(each for each in spelled if os.environ.get(each)) or " or ".join(names)
