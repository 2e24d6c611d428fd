"""`doctor` on LLM endpoints: requests each one's list of models, with its key, along the route that a worker takes.

Only configured endpoints are contacted: no redirect is followed, and a local endpoint is reached without a proxy.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from holdfast.config.llm_endpoints import ADDRESSES, VERSION
from holdfast.config.settings import Settings
from holdfast.core.base.text import one_line
from holdfast.core.llm.names import Api
from holdfast.doctor.check import Check

DEFAULT_ENDPOINT = "https://api.openai.com/v1"
"""The OpenAI client's default endpoint."""

_SECONDS = 5.0
_MAX_BYTES = 65_536
_MESSAGE_CHARS = 300


@dataclass(frozen=True)
class _Probed:
    """An endpoint to request the models of."""

    check: str
    """The name of the check."""
    label: str
    url: str
    secret: str
    api: Api = "chat"
    address: str = "OPENAI_BASE_URL"
    """The setting of its address."""
    key: str = "OPENAI_API_KEY"
    """The setting of its key."""

    @property
    def models(self) -> str:
        """The URL of its list of models."""
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        if self.api == "messages":
            path = f"{path.removesuffix('/v1')}/v1"
        return parts._replace(path=f"{path}/models").geturl()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request, as a worker sends them."""
        if self.api == "messages":
            return {"anthropic-version": VERSION, **({"X-Api-Key": self.secret} if self.secret else {})}
        if self.check == "llm":  # whose client requires a key
            return {"Authorization": f"Bearer {self.secret or 'none'}"}
        return {"Authorization": f"Bearer {self.secret}"} if self.secret else {}


async def probe_llm(settings: Settings) -> Check:
    """Request the endpoint's list of models, and judge the response. Nothing is generated, so nothing is paid for."""
    secret = settings.openai_api_key.get_secret_value() if settings.openai_api_key else ""
    return await _probe(_Probed("llm", settings.llm, settings.openai_base_url or DEFAULT_ENDPOINT, secret))


async def probe_endpoints(settings: Settings) -> list[Check]:
    """Do the same with Anthropic's endpoint, and with those that the project names."""
    probed, found = [], []
    if settings.anthropic_api_key or settings.anthropic_base_url:
        secret = settings.anthropic_api_key.get_secret_value() if settings.anthropic_api_key else ""
        url, names = settings.anthropic_base_url or ADDRESSES["messages"], ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
        probed.append(_Probed("endpoint", "anthropic", url, secret, "messages", *names))
    for name, each in settings.llm_endpoints.items():
        if each.key and each.secret is None:
            fix = f"set {each.key} where workers run, or take `key` out if the endpoint needs none"
            found.append(Check("endpoint", "missing", f"{name} at {_public(each.address)}: {each.key} is not set", fix))
            continue
        secret = each.secret.get_secret_value() if each.secret else ""
        key = each.key or f"`key` of [llm.{name}]"
        probed.append(_Probed("endpoint", name, each.address, secret, each.api, f"`base_url` of [llm.{name}]", key))
    return [*await asyncio.gather(*map(_probe, probed)), *found]


async def _probe(probed: _Probed) -> Check:
    parts = urlsplit(probed.url)
    secrets = (probed.secret, parts.password or "", parts.query)
    what = f"{probed.label} at {_public(probed.url)}, {'key set' if probed.secret else 'no key'}"
    try:
        async with asyncio.timeout(_SECONDS):
            response, body = await _models(probed)
    except TimeoutError:
        return Check(probed.check, "missing", f"{what}: no answer within {_SECONDS:g} s", _fix_for("", probed))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ImportError, ValueError) as error:
        reason = _redacted(str(error) or type(error).__name__, secrets)
        detail = f"{what}: it cannot be reached: {reason}"
        return Check(probed.check, "missing", detail, _fix_for(reason, probed))
    return _judge(what, response, _redacted(_message(body), secrets), body, probed)


def _public(url: str) -> str:
    """Return a URL without the parts that may hold a secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def _models(probed: _Probed) -> tuple[httpx2.Response, bytes]:
    """Request the models; return the response and the first `_MAX_BYTES` or so of its body."""
    local = _is_local(urlsplit(probed.url).hostname)
    headers = {**probed.headers, "Accept": "application/json"}
    async with (
        httpx2.AsyncClient(follow_redirects=False, timeout=_SECONDS, trust_env=not local) as client,
        client.stream("GET", probed.models, headers=headers) as response,
    ):
        body = b""
        async for part in response.aiter_bytes():
            body += part
            if len(body) >= _MAX_BYTES:
                break
        return response, body


def _judge(what: str, response: httpx2.Response, message: str, body: bytes, probed: _Probed) -> Check:
    code, name = response.status_code, probed.check
    detail = f"{what}: it answers {code}" + (f": {message}" if message else "")
    to_api = f"set {probed.address} to the API" + ("" if probed.api == "messages" else ", which usually ends in /v1")
    if response.is_success:
        if body.lstrip()[:1] in (b"{", b"["):  # a long list is read only in part
            return Check(name, "ok", what)
        fix = f"{to_api}: this may be a page for people, or a log-in"
        return Check(name, "weak", f"{what}: it answers, but not with a list of models: {message}", fix)
    if code in (401, 403):
        fix = f"set {probed.key} to a key of this endpoint" if probed.secret else f"set {probed.key}: it wants a key"
        return Check(name, "missing", detail, fix)
    if response.is_redirect:
        to = one_line(_public(response.headers.get("location", "")), _MESSAGE_CHARS)
        fix = f"set {probed.address} to the API's own address; a redirect may lead to a log-in, and is not followed"
        return Check(name, "missing", f"{what}: it redirects ({code}) to {to}", fix)
    if code in (404, 405):
        return Check(name, "weak", detail, f"{to_api}; an endpoint without a list of models may do")
    return Check(name, "weak", detail, "try again later; workers retry what such an answer refuses")


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


def _fix_for(reason: str, probed: _Probed) -> str:
    if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
        return f"check the endpoint's certificate, SSL_CERT_FILE, and whether {probed.address} should be http:// or https://"
    if any(part in reason for part in ("Name or service", "nodename", "name resolution", "getaddrinfo")):
        return f"check the host in {probed.address}, and this machine's DNS"
    return f"start the endpoint, or correct {probed.address}; check HTTPS_PROXY if there is one"
