"""`doctor` on the hardening profile (docs/how-to/harden.md): finds weakened guarantees. Never prints a secret."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.config.encryption_keys import split_plain
from holdfast.config.folder_database import NOWHERE
from holdfast.config.loading import load
from holdfast.config.policy_file import load_policy
from holdfast.config.programs import CLI
from holdfast.config.settings import Settings
from holdfast.core.agents.agent import shared
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.policy import Policy
from holdfast.core.base.text import count
from holdfast.doctor.check import Check, Status
from holdfast.encryption.fleet_keys import HOW, fleet_seals
from holdfast.errors import HoldfastError

_GUESSED: Final = frozenset({"", "postgres", "holdfast", "temporal", "password", "secret", "admin", "changeme", "root"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]", ""})


def hardening(settings: Settings, config: Mapping[str, Any], *, not_imported: str = "") -> list[Check]:
    """Return the lines of the profile that this process can check.

    Args:
        settings: From the environment.
        config: Temporal's connection configuration (`connect_config`).
        not_imported: The workers' catalog, if it must not be imported here; empty to import the one in the settings.
    """
    return [
        _fleet_key(settings, config),
        _plain_starts(settings),
        _policy(settings, not_imported),
        _encryption(settings),
        _transport(config),
        _gateway(settings),
        _database_password(settings),
        _account(),
        _state_folder(settings.home),
    ]


def _fleet_key(settings: Settings, config: Mapping[str, Any]) -> Check:
    try:
        seals = fleet_seals(settings, config)
    except HoldfastError as error:
        return Check("fleet key", "weak", str(error))
    if not seals:
        detail = (
            "none here: this process makes only plain starts, and cannot detect a forged answer; workers need a key"
        )
        return Check("fleet key", "weak", detail, HOW)
    return Check("fleet key", "ok", f"{count(len(seals.keys), 'key')}; {next(iter(seals.keys))!r} seals")


def _plain_starts(settings: Settings) -> Check:
    if settings.plain_starts:
        detail = "accepted: everybody who reaches Temporal can start an agent run with a task"
        return Check("plain starts", "weak", detail, "HOLDFAST_PLAIN_STARTS=false on the workers")
    return Check("plain starts", "ok", "refused")


def _policy(settings: Settings, not_imported: str) -> Check:
    if not_imported and not settings.policy:
        fix = f"to import it here, if you trust it: {CLI.command('doctor', '--catalog', not_imported)}"
        return Check("policy", "open", f"the agents' own, in {not_imported}", fix)
    try:
        policies = list(_policies(settings))
    except HoldfastError as error:
        if settings.policy:  # no worker starts with it
            return Check("policy", "missing", str(error), CLI.command("policy", "check", str(settings.policy)))
        return Check("policy", "weak", str(error), "correct the catalog")
    unsigned = [name for name, policy in policies if policy.signatures != "required"]
    if unsigned:
        detail = f"unsigned decisions count, whoever sends them: {', '.join(unsigned)}"
        return Check(
            "policy", "weak", detail, f"signatures: required, and a key for each approver ({CLI.command('keygen')})"
        )
    return Check("policy", "ok", "decisions must be signed")


def _policies(settings: Settings) -> Iterator[tuple[str, Policy]]:
    if settings.policy:
        yield str(settings.policy), load_policy(settings.policy)
        return
    catalog = load(settings.catalog, Catalog)
    for name in catalog.agents:
        yield f"agent {name}", shared(catalog.spec(name, default_llm=settings.llm)).policy


def _encryption(settings: Settings) -> Check:
    if not settings.encryption_keys:
        detail = "everybody who reads Temporal or its database reads the payloads"
        return Check("encryption", "weak", detail, "HOLDFAST_ENCRYPTION_KEYS (docs/how-to/encrypt.md)")
    if split_plain(settings.encryption_keys.get_secret_value())[1]:
        detail = "on, but sealed plain text is still accepted"
        return Check(
            "encryption", "weak", detail, "remove `plain` when the runs that began without encryption have ended"
        )
    return Check("encryption", "ok", "payloads are encrypted")


def _transport(config: Mapping[str, Any]) -> Check:
    address = str(config["target_host"])
    if _is_local(address.rpartition(":")[0]):
        return Check("transport", "ok", f"{address}: this machine only")
    if not config.get("tls") and not config.get("api_key"):
        fix = "mTLS and an authoriser for Temporal: examples/hardened"
        return Check("transport", "weak", f"{address}: without TLS", fix)
    return Check("transport", "ok", f"{address}: TLS")


def _gateway(settings: Settings) -> Check:
    if _is_local(settings.gateway_host):
        return Check("gateway bind", "ok", f"{settings.gateway_host}: this machine only")
    fix = "bind it to loopback or a private address, behind a proxy that ends TLS"
    return Check("gateway bind", "weak", f"{settings.gateway_host}: reachable from other machines, in plain HTTP", fix)


def _database_password(settings: Settings) -> Check:
    if settings.database_url is None:
        return Check("database password", "open", "DATABASE_URL is not set here")
    parts = urlsplit(settings.database_url)
    if not parts.hostname:
        return Check("database password", "ok", "a Unix socket")
    password = unquote(parts.password or os.environ.get("PGPASSWORD", ""))
    file = NOWHERE not in parts.query and (os.environ.get("PGPASSFILE") or "sslcert" in parts.query)
    if not file and (password.lower() in _GUESSED or password == parts.username):
        return Check("database password", "weak", f"none, or a common one, for {parts.hostname}", "set a random one")
    return Check("database password", "ok", "set, and not a common one")


def _account() -> Check:
    if os.geteuid() == 0:
        detail = "root: a command of a run, unless confined, can reach everything"
        return Check("account", "weak", detail, "run workers under an account of their own")
    return Check("account", "ok", f"user id {os.geteuid()}")


def _state_folder(home: Path) -> Check:
    try:
        mode = home.stat().st_mode
    except OSError:
        return Check("state folder", "open", f"{home} does not exist")
    status: Status = "weak" if mode & stat.S_IRWXO or mode & (stat.S_IRGRP | stat.S_IWGRP) else "ok"
    return Check(
        "state folder", status, f"{home}: mode {mode & 0o777:o}", f"chmod 700 {home}" if status == "weak" else ""
    )


def _is_local(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")
