"""The file `mcp.lock`, in which a project keeps the tools of its MCP servers as an operator has accepted them.

It is JSON, sorted and indented, because people review its changes like those of any lock of dependencies.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from pydantic import ValidationError

from holdfast.config.own_file import NotOwnFile, read_own_file
from holdfast.core.base.models import Frozen
from holdfast.errors import SettingsError
from holdfast.mcp.pins import PinnedServer, ServerRejected, check_list

LOCK: Final = "mcp.lock"
FORMAT: Final = "mcp-lock/1"
MAX_BYTES: Final = 16_000_000


class _Entry(Frozen):
    digest: str
    server: PinnedServer


class _File(Frozen):
    format: str
    servers: dict[str, _Entry] = {}


def read_lock(path: Path) -> dict[str, PinnedServer]:
    """Return the accepted servers by name; none if there is no file.

    Raises:
        SettingsError: The file cannot be used; nothing of it is.
    """
    if not os.path.lexists(path):
        return {}
    try:
        file = _File.model_validate_json(read_own_file(path, private=False, max_bytes=MAX_BYTES))
    except (NotOwnFile, FileNotFoundError) as error:
        raise SettingsError(f"{path} {error}. Nothing of it was used.") from None
    except (ValidationError, RecursionError):
        raise SettingsError(f"{path} is not a lock of MCP servers. Write it again: holdfast mcp lock.") from None
    if file.format != FORMAT:
        raise SettingsError(f"{path} has the format {file.format!a}, and this release reads {FORMAT}.")
    for name, entry in file.servers.items():
        _check(path, name, entry)
    return {name: entry.server for name, entry in file.servers.items()}


def _check(path: Path, name: str, entry: _Entry) -> None:
    try:
        check_list(entry.server)
    except ServerRejected as error:
        raise SettingsError(f"{path}: server {name!a}: {error}.") from None
    if entry.digest != entry.server.digest:
        raise SettingsError(
            f"{path}: the digest of {name!a} does not match its tools, so the file was edited or merged by hand. "
            f"Accept the server's tools again: holdfast mcp lock {name}."
        )


def write_lock(path: Path, servers: Mapping[str, PinnedServer]) -> None:
    """Replace the file at once.

    Raises:
        SettingsError: It cannot be written.
    """
    file = {
        "format": FORMAT,
        "servers": {
            name: {"digest": server.digest, "server": server.model_dump(mode="json", exclude_defaults=True)}
            for name, server in servers.items()
        },
    }
    text = json.dumps(file, indent=2, sort_keys=True, ensure_ascii=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        partial.write_text(f"{text}\n", encoding="utf-8")
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from None
