"""The keys and passwords in this process's environment, so that logs can redact them.

Each row of `_KINDS` describes how one variable holds its secret; add a row for a new setting. A variable without a row
also counts if its name marks it as a secret.
"""

import base64
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr
from temporalio.envconfig import ClientConfig

from holdfast.config.encryption_keys import parse_keys, split_plain
from holdfast.config.settings import Settings, variables
from holdfast.core.tools.secrets import Secrets


def own_secrets(settings: Settings, environ: Mapping[str, str] | None = None) -> Secrets:
    """Collect the secrets of this process for redaction; tools never receive them.

    Args:
        settings: The settings of this process.
        environ: The environment of this process; None for `os.environ`.
    """
    environ = os.environ if environ is None else environ
    words = _plain_words(settings, environ)
    secrets = [*_of_variables(_variables(settings, environ)), *_of_temporal(environ), *_of_endpoints(settings)]
    secrets += [(name, each.get_secret_value()) for name, each in settings.telemetry_headers.items()]
    return Secrets({}, more=[(name, text) for name, text in secrets if text not in words])


def _variables(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return every variable with its text; settings may also come from the command line."""
    texts = {name: text.strip() for name, text in environ.items()}
    for field, variable in variables().items():
        if (value := getattr(settings, field)) is not None:
            texts[variable] = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    return {name: text for name, text in texts.items() if text}


def _of_variables(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in texts.items():
        kind = _KINDS.get(name.upper()) or (_itself if _is_secret(name, text) else None)
        for secret in kind(text) if kind else ():
            yield name, secret


def _of_endpoints(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the keys of the named LLM endpoints, whose variables may have any name, and passwords in addresses."""
    for setting in settings.llm_endpoints.values():
        if setting.secret:
            yield setting.key, setting.secret.get_secret_value()
        yield from (("HOLDFAST_LLM_ENDPOINTS", secret) for secret in _url(setting.base_url))


def _of_temporal(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield secrets in Temporal's variables and configuration file, read by Temporal's client."""
    config: Mapping[str, Any] = {}
    with suppress(RuntimeError, ValueError, OSError):  # a broken configuration is reported when connecting
        config = dict(ClientConfig.load_client_connect_config(override_env_vars=dict(environ)))
    if isinstance(key := config.get("api_key"), str):
        yield "TEMPORAL_API_KEY", key
    if isinstance(pem := getattr(config.get("tls"), "client_private_key", None), bytes):
        for line in _pem(pem.decode("ascii", "replace")):
            yield "TEMPORAL_TLS_CLIENT_KEY", line
    for text in (config.get("rpc_metadata") or {}).values():
        if isinstance(text, str):
            yield "TEMPORAL_GRPC_META", text
            yield "TEMPORAL_GRPC_META", text.removeprefix("Bearer ")


def _plain_words(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """Names of users, hosts and databases: as passwords they protect nothing, and any text may contain them."""
    parts = urlsplit(settings.database_url or "")
    from_libpq = (environ.get(name, "") for name in ("PGUSER", "PGDATABASE", "PGHOST"))
    return {
        "postgres",
        "holdfast",
        "temporal",
        parts.username or "",
        parts.hostname or "",
        parts.path.strip("/"),
        *from_libpq,
    }


def _itself(text: str) -> Iterator[str]:
    yield text


def _url(text: str) -> Iterator[str]:
    """Yield the password, alone and in the spellings that can appear."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    if parts.password:
        yield f"{parts.username or ''}:{parts.password}@"
        if parts.password not in (parts.username, parts.hostname, parts.path.strip("/")):
            yield parts.password
            yield unquote(parts.password)
            yield f"{unquote(parts.username or '')}:{unquote(parts.password)}"  # as Basic authentication encodes it


def _webhooks(text: str) -> Iterator[str]:
    """Comma-separated URLs, or a file of them: anybody who has such a URL can post to it."""
    yield from re.findall(r"https?://[^\s,'\"]+", text if "://" in text else _read(text))


def _keys(text: str) -> Iterator[str]:
    """`id:BASE64,…`: each key as written, and in the other encodings of the same bytes."""
    with suppress(ValueError):
        for key in parse_keys(split_plain(text)[0]):
            yield from (key.text, key.secret.hex())
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield (text := encode(key.secret).decode())
                yield text.rstrip("=")


def _file(path: str) -> Iterator[str]:
    """A file that holds one key: a PEM, or one of ours."""
    text = _read(path).strip()
    yield from _pem(text) if "-----BEGIN" in text else _itself(text)


def _pem(text: str) -> Iterator[str]:
    """Line by line: a log may show any of them."""
    yield from (line.strip() for line in text.splitlines() if len(line.strip()) >= 16 and not line.startswith("-----"))


def _passfile(path: str) -> Iterator[str]:
    """PostgreSQL's `host:port:database:user:password` lines."""
    for line in _read(path).splitlines():
        if line and not line.startswith("#"):
            password = re.split(r"(?<!\\):", line)[-1]
            yield re.sub(r"\\(.)", r"\1", password)


def _read(path: str) -> str:
    with suppress(OSError, ValueError):
        return Path(path).expanduser().read_text("utf-8", "replace")
    return ""


_SECRET_NAME: Final = re.compile(
    r"(^|_)(API_?KEY|SECRET|SECRET_?KEY|ACCESS_?KEY|PRIVATE_?KEY|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$",
    re.IGNORECASE,
)


def _is_secret(name: str, text: str) -> bool:
    """Whether a variable's name marks its text as a secret; the path of a secret's file is not one."""
    return _SECRET_NAME.search(name) is not None and not text.startswith(("/", "~", "./", "../"))


_KINDS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    "ALL_PROXY": _url,
    "ANTHROPIC_API_KEY": _itself,
    "ANTHROPIC_BASE_URL": _url,
    "DATABASE_URL": _url,
    "FTP_PROXY": _url,
    "HOLDFAST_ANCHORS": _webhooks,
    "HOLDFAST_ENCRYPTION_KEYS": _keys,
    "HOLDFAST_FLEET_KEYS": _keys,
    "HOLDFAST_GATEWAY_KEY": _file,
    "HOLDFAST_KEY": _file,
    "HOLDFAST_NODE_KEY": _file,
    "HOLDFAST_OPENID_SECRET": _itself,
    "HOLDFAST_SLACK_SIGNING_SECRET": _itself,
    "HOLDFAST_STREAM_URL": _url,
    "HOLDFAST_WEBHOOKS": _webhooks,
    "HOLDFAST_WEBHOOK_SECRET": _itself,
    "HTTPS_PROXY": _url,
    "HTTP_PROXY": _url,
    "OPENAI_API_KEY": _itself,
    "OPENAI_BASE_URL": _url,
    "PGPASSFILE": _passfile,
    "PGPASSWORD": _itself,
    "PGSSLKEY": _file,
    "TEMPORAL_API_KEY": _itself,
    "TEMPORAL_CODEC_AUTH": _itself,
}
