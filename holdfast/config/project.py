"""Settings from a project folder: `holdfast.toml` and `.env` in the current folder.

A folder has no authority of its own: a cloned or unpacked folder must not decide whom its user trusts:

1. Only the current folder is a project, and only if it has a `holdfast.toml`. Its parents are not read.
2. Each file must be a regular file that belongs to this user and that others cannot write; `.env` must be private.
3. `holdfast.toml` describes the project (`IN_TOML`). Servers, keys, policies and names of people are rejected there.
4. Only programs that run the project import code that its files name: the worker and the gateway, not the CLI.
5. A secret from elsewhere is never sent to an address that `.env` names. `.env` does not weaken the connection to
   another address.
6. Values are settings of Holdfast, and secrets for tools. They do not enter the process's environment.
"""

import json
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.config.folder_database import confined
from holdfast.config.llm_endpoints import misdirected_key
from holdfast.config.own_file import NotOwnFile, read_own_file
from holdfast.config.settings import nearest, variables
from holdfast.errors import SettingsError

TOML = "holdfast.toml"
ENV = ".env"

IN_TOML: Final = (
    "catalog",
    "script",
    "llm",
    "embeddings",
    "embedding_dimensions",
    "task_queue",
    "answer_seconds",
    "log_level",
    "log_format",
)
"""The settings that `holdfast.toml` may have: they describe the project, and do not decide whom its user trusts."""

TEMPORAL: Final = (
    "TEMPORAL_ADDRESS",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_API_KEY",
    "TEMPORAL_TLS",
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_SERVER_NAME",
)
"""The variables of Temporal's client that `.env` may have."""

NAMING_A_SERVER: Final = ("TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE")
"""Variables that select a Temporal server instead of an embedded one."""

_ENDPOINTS: Final = "HOLDFAST_LLM_ENDPOINTS"

_HEADERS: Final = "HOLDFAST_TELEMETRY_HEADERS"

_CODE: Final = ("HOLDFAST_CATALOG", "HOLDFAST_SCRIPT")
_SENT_TO: Final = {
    "OPENAI_BASE_URL": ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"),
    "ANTHROPIC_BASE_URL": ("ANTHROPIC_API_KEY",),
    "DATABASE_URL": ("PGPASSWORD", "PGSERVICE"),
    "TEMPORAL_ADDRESS": (
        *("TEMPORAL_API_KEY", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE", "HOLDFAST_FLEET_KEYS"),
        *("TEMPORAL_TLS_CLIENT_KEY_PATH", "TEMPORAL_TLS_CLIENT_KEY_DATA"),
    ),
    "HOLDFAST_WEBHOOKS": ("HOLDFAST_WEBHOOK_SECRET",),
    "HOLDFAST_TRACES_ENDPOINT": (_HEADERS,),
    "HOLDFAST_METRICS_ENDPOINT": (_HEADERS,),
}
"""Addresses, and the secrets (or files of secrets) that are sent there or sign requests to it."""

_SERVERS: Final = (
    *("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HOLDFAST_LLM_ENDPOINTS"),
    *("DATABASE_URL", "TEMPORAL_ADDRESS", "HOLDFAST_HOME"),
)
"""Variables that decide which servers and which state folder a command uses."""


@dataclass(frozen=True)
class Project:
    """The configuration of a program, from its environment and from the project folder."""

    environ: Mapping[str, str]
    """The environment, completed by the files: the environment wins over `.env`, and `.env` over `holdfast.toml`."""
    root: Path
    """The folder that holds `.holdfast` by default."""
    files: Mapping[Path, tuple[str, ...]]
    """Each file that was read, with the variables that it sets and no source of higher precedence does."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The catalog and the script, by their variables. A program that does not run the project must not import them if
    only its files name them."""

    def listing(self) -> list[str]:
        """Return a line for each file: its path, and the names that it sets, without values."""
        return [f"{path} ({', '.join(names) or 'sets nothing'})" for path, names in self.files.items()]

    @property
    def redirects(self) -> list[str]:
        """Lines, one for each file that decides which servers or which state folder are used."""
        servers = {path: sorted({*names} & {*_SERVERS}) for path, names in self.files.items()}
        return [f"{path} sets {', '.join(names)}" for path, names in servers.items() if names]

    @property
    def redirecting(self) -> set[str]:
        """The variables of the files that decide which servers or which state folder are used."""
        return {name for names in self.files.values() for name in names if name in _SERVERS}


def read_project(environ: Mapping[str, str], *, folder: Path, default_root: Path, runs_code: bool) -> Project:
    """Complete the environment from the files of a project folder. A blank variable counts as unset.

    Args:
        environ: Usually `os.environ`, with values from the command line.
        folder: The current folder.
        default_root: The folder that holds `.holdfast` if `folder` is not a project.
        runs_code: Whether this program runs the project, and so imports the catalog and the script that its files name.

    Raises:
        SettingsError: A file cannot be used, or sets a variable that it must not; none of its values is used.
    """
    toml, env = folder / TOML, folder / ENV
    if not os.path.lexists(toml):
        return Project(environ, default_root, {})
    inherited = {name: text for name, text in environ.items() if text.strip()}
    from_env = _read_env(env) if os.path.lexists(env) else {}
    from_toml = _read_toml(toml)
    # The script belongs to the catalog: a folder must not add its code to another catalog's worker.
    if "HOLDFAST_CATALOG" in inherited or "HOLDFAST_CATALOG" in from_env:
        from_toml.pop("HOLDFAST_SCRIPT", None)
    if "HOLDFAST_CATALOG" in inherited:
        from_env.pop("HOLDFAST_SCRIPT", None)
    _check_addresses(env, inherited, from_env)
    _check_headers(env, inherited, from_env)
    _check_endpoints(toml, inherited, from_toml)
    _check_endpoints(env, inherited, from_env)
    if "DATABASE_URL" in from_env.keys() - inherited.keys():
        from_env["DATABASE_URL"] = confined(env, from_env["DATABASE_URL"])
    if "TEMPORAL_ADDRESS" in from_env.keys() - inherited.keys():
        from_env["TEMPORAL_CONFIG_FILE"] = os.devnull  # it may hold the key of another server
    merged = from_toml | from_env
    code = {name: text for name, text in (merged | inherited).items() if name in _CODE}
    if not runs_code:
        merged = {name: text for name, text in merged.items() if name not in _CODE}
    files = {toml: _effective(from_toml, over=from_env.keys() | inherited.keys())}
    if os.path.lexists(env):
        files[env] = _effective(from_env, over=inherited.keys())
    return Project({**environ, **merged, **inherited}, folder, files, code)


def _effective(names: Iterable[str], *, over: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a file that no source of higher precedence sets."""
    return tuple(name for name in names if name not in over and name != "TEMPORAL_CONFIG_FILE")


def _read_toml(path: Path) -> dict[str, str]:
    """Return the settings in `holdfast.toml`, by their variables."""
    try:
        settings = tomllib.loads(_read(path, private=False))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None
    names = variables()
    endpoints = ""
    if isinstance(settings.get("llm"), dict):
        settings["llm"], endpoints = _split_llm(path, settings["llm"])
    for key, value in settings.items():
        _check_printable(path, key, str(value))
        if key not in IN_TOML:
            raise SettingsError(f"{path}: {_misplaced(key)}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingsError(f"{path}: {key} must be a text or a number.")
    found = {names[key]: str(value) for key, value in settings.items() if str(value).strip()}
    return found | ({_ENDPOINTS: endpoints} if endpoints else {})


def _split_llm(path: Path, table: Mapping[str, Any]) -> tuple[str, str]:
    """Return the settings of the table `llm`: the names in `default`, and the endpoints as JSON; each may be empty."""
    default, tables = table.get("default", ""), {name: each for name, each in table.items() if name != "default"}
    names = default if isinstance(default, list) else [default]
    if not all(isinstance(name, str) for name in names) or not all(isinstance(each, dict) for each in tables.values()):
        raise SettingsError(
            f"{path}: [llm] has `default`, the name of an LLM or a list of them, and a table for each endpoint: "
            '[llm.NAME] with api = "chat", "responses" or "messages", base_url, and key, the name of a variable.'
        )
    try:
        return ",".join(names), json.dumps(tables) if tables else ""
    except TypeError:  # a date
        raise SettingsError(f"{path}: the fields of an endpoint are texts.") from None


def _check_endpoints(path: Path, inherited: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Reject endpoints of a file that would get secrets of the environment, unless the environment names them, too."""
    if _ENDPOINTS in inherited or not (text := own.get(_ENDPOINTS)):
        return
    try:
        tables = json.loads(text)
    except ValueError:
        return  # reported with the settings
    if isinstance(tables, dict) and (why := misdirected_key(tables, inherited=inherited)):
        raise SettingsError(f"{path}: {why}.")


def _check_headers(path: Path, inherited: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Reject headers of a file whose values are variables of the environment: any secret could be sent anywhere."""
    if _HEADERS in inherited or not (text := own.get(_HEADERS)):
        return
    named = (each.partition("=")[2].strip() for each in text.split(","))
    if taken := sorted({name for name in named if name in inherited}):
        raise SettingsError(
            f"{path} sets {_HEADERS}, which would send {', '.join(taken)} of the environment to a collector: a file in "
            f"a folder must not decide where your secrets are sent. Set {_HEADERS} in the environment."
        )


def _check_printable(path: Path, name: str, value: str) -> None:
    """Reject text that could act on the terminal when a message quotes it."""
    if not (name.isprintable() and value.isprintable()):
        raise SettingsError(f"{path}: {name!a} contains control characters.")


def _misplaced(key: str) -> str:
    fields = {variable: field for field, variable in variables().items()} | {name: name for name in TEMPORAL}
    field = fields.get(key.upper(), key.lower())
    if field in IN_TOML:
        return f"write {field} instead of {key}."
    if field in variables() or field in TEMPORAL:
        variable = variables().get(field, field)
        return (
            f"{key} must not be set there: a folder that you got from others would decide whom you trust. "
            f"Set {variable} in the environment, or in {ENV} beside it."
        )
    return f"there is no setting {key}.{_nearest(field, IN_TOML)}"


def _read_env(path: Path) -> dict[str, str]:
    """Return the variables in `.env`."""
    from io import StringIO

    from dotenv.parser import parse_stream

    # Only parsed: with interpolation, `https://elsewhere/${OPENAI_API_KEY}` would send a secret of the environment.
    bindings = list(parse_stream(StringIO(_read(path, private=True))))
    if faults := [str(each.original.line) for each in bindings if each.error]:
        # Refused, not skipped: without its key, a worker would run on the script.
        raise SettingsError(f"{path}, line {', '.join(faults)}: write NAME=value there. Nothing of it was used.")
    values = {each.key: each.value for each in bindings if each.key is not None}
    ours = (*variables().values(), *TEMPORAL)
    for name, value in values.items():
        _check_printable(path, name, value or "" if name in ours else "")
        if name.startswith(("HOLDFAST_", "TEMPORAL_", "OPENAI_")) and name not in ours:
            raise SettingsError(f"{path}: there is no setting {name}.{_nearest(name, ours)}")
        if name == "PGPASSWORD":
            raise SettingsError(
                f"{path}: {name} has no effect there. Set it in the environment, or put the password into DATABASE_URL."
            )
    return {name: text for name, value in values.items() if (text := (value or "").strip())}


def _check_addresses(path: Path, inherited: Mapping[str, str], from_env: Mapping[str, str]) -> None:
    for address, secrets in _SENT_TO.items():
        sent = [name for name in secrets if name in inherited]
        if address == "TEMPORAL_ADDRESS":
            sent += [name for name in inherited if name.startswith("TEMPORAL_GRPC_META")]
        if sent and address in from_env and address not in inherited:
            raise SettingsError(
                f"{path} sets {address}, and {', '.join(sent)} of the environment would be used with it: a file in a "
                f"folder must not decide where your secrets are sent. Set {address} in the environment, too, or unset "
                f"{', '.join(sent)} there."
            )

    weakened = [name for name in from_env if name.startswith("TEMPORAL_TLS") and name not in inherited]
    if weakened and ("TEMPORAL_ADDRESS" in inherited or "TEMPORAL_ADDRESS" not in from_env):
        raise SettingsError(
            f"{path} sets {', '.join(weakened)}, and not the TEMPORAL_ADDRESS that is used: a file in a folder must "
            f"not decide how your server is trusted. Set {', '.join(weakened)} in the environment."
        )


def _read(path: Path, *, private: bool) -> str:
    try:
        return read_own_file(path, private=private)
    except (NotOwnFile, FileNotFoundError) as error:
        reason = "is gone" if isinstance(error, FileNotFoundError) else str(error)
        raise SettingsError(f"{path} {reason}. Nothing of it was used.") from None


def _nearest(name: str, known: Collection[str]) -> str:
    """Return a sentence that names the nearest known name, or else all of them."""
    return nearest(name, known) or f" Known are: {', '.join(known)}."
