"""`doctor` on the LLM endpoint: requests its list of models, with the key, along the route that a worker takes.

Only the configured endpoint is contacted: no redirect is followed, and a local endpoint is reached without a proxy.
"""

import asyncio
import json
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from holdfast.cli.screens.checks import Check
from holdfast.config.settings import Settings
from holdfast.core.base.text import one_line

DEFAULT_ENDPOINT = "https://api.openai.com/v1"
"""The OpenAI client's default endpoint."""

_SECONDS = 5.0
_MAX_BYTES = 65_536
_MESSAGE_CHARS = 300


async def probe_llm(settings: Settings) -> Check:
    """Request the endpoint's list of models, and judge the response. Nothing is generated, so nothing is paid for."""
    base = settings.openai_base_url or DEFAULT_ENDPOINT
    key = settings.openai_api_key.get_secret_value() if settings.openai_api_key else ""
    secrets = (key, urlsplit(base).password or "", urlsplit(base).query)
    what = f"{settings.llm} at {_public(base)}, {'key set' if key else 'no key'}"
    try:
        async with asyncio.timeout(_SECONDS):
            response, body = await _models(base, key)
    except TimeoutError:
        return Check("llm", "missing", f"{what}: no answer within {_SECONDS:g} s", _fix_for(""))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ImportError, ValueError) as error:
        reason = _redacted(str(error) or type(error).__name__, secrets)
        return Check("llm", "missing", f"{what}: it cannot be reached: {reason}", _fix_for(reason))
    return _judge(what, response, _redacted(_message(body), secrets), body, key=key)


def _public(url: str) -> str:
    """Return a URL without the parts that may hold a secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def _models(base: str, key: str) -> tuple[httpx2.Response, bytes]:
    """Request the models; return the response and the first `_MAX_BYTES` or so of its body."""
    parts = urlsplit(base)
    url = parts._replace(path=parts.path.rstrip("/") + "/models").geturl()
    headers = {"Authorization": f"Bearer {key or 'none'}", "Accept": "application/json"}
    async with (
        httpx2.AsyncClient(follow_redirects=False, timeout=_SECONDS, trust_env=not _is_local(parts.hostname)) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        body = b""
        async for part in response.aiter_bytes():
            body += part
            if len(body) >= _MAX_BYTES:
                break
        return response, body


def _judge(what: str, response: httpx2.Response, message: str, body: bytes, *, key: str) -> Check:
    code = response.status_code
    detail = f"{what}: it answers {code}" + (f": {message}" if message else "")
    if response.is_success:
        if body.lstrip()[:1] in (b"{", b"["):  # a long list is read only in part
            return Check("llm", "ok", what)
        fix = "set OPENAI_BASE_URL to the API, which usually ends in /v1: this may be a page for people, or a log-in"
        return Check("llm", "weak", f"{what}: it answers, but not with a list of models: {message}", fix)
    if code in (401, 403):
        fix = "set OPENAI_API_KEY to a key of this endpoint" if key else "set OPENAI_API_KEY: this endpoint wants a key"
        return Check("llm", "missing", detail, fix)
    if response.is_redirect:
        to = one_line(_public(response.headers.get("location", "")), _MESSAGE_CHARS)
        fix = "set OPENAI_BASE_URL to the API's own address; a redirect may lead to a log-in, and is not followed"
        return Check("llm", "missing", f"{what}: it redirects ({code}) to {to}", fix)
    if code in (404, 405):
        fix = "set OPENAI_BASE_URL to the API, which usually ends in /v1; an endpoint without a list of models may do"
        return Check("llm", "weak", detail, fix)
    return Check("llm", "weak", detail, "try again later; workers retry what such an answer refuses")


def _message(body: bytes) -> str:
    """Return the provider's message: the one in its error, or else the body."""
    text = body.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        for name in ("error", "message", "detail"):
            if isinstance(value, dict) and value.get(name):
                value = value[name]
        text = value if isinstance(value, str) else json.dumps(value)
    return text


def _is_local(host: str | None) -> bool:
    with suppress(ValueError):
        return ip_address(host or "").is_loopback
    return host == "localhost" or (host or "").endswith(".localhost")


def _redacted(message: str, secrets: tuple[str, ...]) -> str:
    """Return a message on one line, without secrets. They are replaced before the cut, which could split one."""
    for secret in filter(None, secrets):
        message = message.replace(secret, "…")
    return one_line(message, _MESSAGE_CHARS)


def _fix_for(reason: str) -> str:
    if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
        return (
            "check the endpoint's certificate, SSL_CERT_FILE, and whether OPENAI_BASE_URL should be http:// or https://"
        )
    if any(part in reason for part in ("Name or service", "nodename", "name resolution", "getaddrinfo")):
        return "check the host in OPENAI_BASE_URL, and this machine's DNS"
    return "start the endpoint, or correct OPENAI_BASE_URL; check HTTPS_PROXY if there is one"
