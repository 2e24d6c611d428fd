"""Fleet keys, with which our own processes seal messages that only they may send (`holdfast.core.mac.seals`).

`HOLDFAST_FLEET_KEYS` holds them, as `id1:BASE64,id0:BASE64`. The embedded stack has a key of its own, in a file of its
state folder, for every process that uses that stack.
"""

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from holdfast.config.encryption_keys import parse_keys
from holdfast.config.programs import WORKER
from holdfast.config.running_stacks import is_running
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack, read_stack
from holdfast.core.mac.seals import FleetKeys
from holdfast.errors import SettingsError

FILE = "fleet.keys"
HOW = 'make one with `echo "fleet-1:$(openssl rand -base64 32)"`, and set it on every worker, gateway and CLI'


def fleet_seals(settings: Settings, config: Mapping[str, Any]) -> FleetKeys:
    """Return the seals of this process; empty without a key.

    Args:
        settings: From the environment; `HOLDFAST_FLEET_KEYS` takes precedence.
        config: Temporal's address (`connect_config`): the embedded stack's key is for that stack only.

    Raises:
        SettingsError: The embedded stack's key cannot be read.
    """
    keys = with_stack_key(settings, config).fleet_keys
    return _seals(keys.get_secret_value()) if keys else FleetKeys()


def with_stack_key(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """Add the embedded stack's key to the settings, so that redaction covers it, too."""
    stack = read_stack(settings.home)
    if settings.fleet_keys or not stack or stack.temporal_address != config["target_host"] or not stack.fleet_keys:
        return settings
    if not config.get("plugins") and not is_running(settings.home, stack):
        return settings  # another server has the address; `connect_config` checks again when it connects
    text = SecretStr(_read(Path(stack.fleet_keys)))
    return settings.model_copy(update={"fleet_keys": text})


def stack_seals(stack: Stack) -> FleetKeys:
    """Return the seals of an embedded stack's processes.

    Raises:
        SettingsError: The stack's key cannot be read.
    """
    if not stack.fleet_keys:
        return FleetKeys()
    return _seals(_read(Path(stack.fleet_keys)))


def required_seals(settings: Settings, config: Mapping[str, Any]) -> FleetKeys:
    """Return the seals of a worker, which must have a key.

    Raises:
        SettingsError: There is no key.
    """
    seals = fleet_seals(settings, config)
    if not seals:
        raise SettingsError(
            "HOLDFAST_FLEET_KEYS is not set: without it, anybody who can reach Temporal could command this worker. "
            f"{HOW[0].upper()}{HOW[1:]}; or use --dev."
        )
    return seals


def ensure_key(home: Path) -> Path:
    """Return the file of a state folder's own fleet key; create it, readable by its owner only, if it is missing.

    Raises:
        OSError: The file cannot be written.
    """
    path = home / FILE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"dev:{base64.b64encode(os.urandom(32)).decode()}\n")
    return path


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path} is open to other users; run `chmod 600` on it, or delete it to get a new key")
        text = path.read_text(encoding="ascii").strip()
        parse_keys(text)
        return text
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the fleet key {path} cannot be read ({error}); `{WORKER.command('--dev')}` creates it"
        ) from None


def _seals(setting: str) -> FleetKeys:
    return FleetKeys({key.id: key.secret for key in parse_keys(setting)})
