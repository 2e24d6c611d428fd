"""Settings of telemetry: the addresses of collectors, and headers whose values are secrets of the environment."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr, ValidationInfo

MOST_HEADERS = 20
"""The most headers of a collector."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def traces_url(text: str) -> str:
    """Return the address to which traces are posted, `/v1/traces` of a collector.

    Raises:
        ValueError: It is no address of a collector.
    """
    return _url(text, "/v1/traces")


def metrics_url(text: str) -> str:
    """Return the address to which metrics are posted, `/v1/metrics` of a collector.

    Raises:
        ValueError: It is no address of a collector.
    """
    return _url(text, "/v1/metrics")


def listen_address(text: str) -> str:
    """Return an address on which metrics are served, `HOST:PORT`.

    Raises:
        ValueError: It is none.
    """
    host, colon, port = text.rpartition(":")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        host = ""
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError("write an IP address and a port, such as 127.0.0.1:9464 or 0.0.0.0:9464")
    return text


def _url(text: str, path: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("write the collector's address for OTLP over HTTP, such as http://collector:4318")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address has no user, password or query: HOLDFAST_TELEMETRY_HEADERS is for secrets")
    own = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, own if own.endswith(path) else own + path, "", ""))


def read_headers(value: Any, info: ValidationInfo) -> dict[str, SecretStr]:
    """Read headers, `Authorization=COLLECTOR_TOKEN, X-Scope=COLLECTOR_SCOPE`: each names the variable of its value.

    Args:
        value: The text.
        info: Its context is the environment that holds the values.

    Raises:
        ValueError: It is something else, or a variable is not set; the message has no value.
    """
    if not isinstance(value, str):
        raise ValueError("write NAME=VARIABLE, separated by commas")
    environ: Mapping[str, str] = info.context or {}
    found: dict[str, SecretStr] = {}
    for each in filter(None, (part.strip() for part in value.split(","))):
        name, equals, variable = (part.strip() for part in each.partition("="))
        if not equals or not _NAME.fullmatch(name) or not _VARIABLE.fullmatch(variable):
            raise ValueError("write NAME=VARIABLE, separated by commas: the variable holds the header's value")
        secret = environ.get(variable, "").strip()
        if not secret:
            raise ValueError(f"the variable {variable} of the header {name} is not set")
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError(f"the variable {variable} has characters that a header cannot have")
        found[name] = SecretStr(secret)
    if len(found) > MOST_HEADERS:
        raise ValueError(f"a collector has at most {MOST_HEADERS} headers")
    return found


def exposes(url: str | None, headers: Mapping[str, SecretStr]) -> bool:
    """Whether secrets in headers would be sent to another machine in plain text."""
    if url is None or not headers:
        return False
    parts = urlsplit(url)
    return parts.scheme == "http" and not on_this_machine(parts.hostname or "")


def on_this_machine(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
