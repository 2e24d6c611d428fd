"""The node key: the private key with which this machine's workers sign seals of the permanent record.

`HOLDFAST_NODE_KEY` names its file; otherwise it is in the state folder. The first worker makes it.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from holdfast.config.own_file import NotOwnFile, read_own_file
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.encryption.signing_keys import read_key, readable_by_others
from holdfast.errors import SettingsError

FILE = "node.key"


def node_key_file(settings: Settings) -> Path:
    """Return the path of the node's key, which may not exist yet."""
    return settings.node_key or settings.home / FILE


def find_node_key(settings: Settings) -> str | None:
    """Return the node's private key; None if there is none yet.

    Raises:
        SettingsError: The file holds no key, or others can read the one in the state folder.
    """
    path = node_key_file(settings)
    try:
        if settings.node_key:
            if not stat.S_ISREG(path.stat().st_mode):  # a named pipe would block for ever
                raise SettingsError(f"the node key {path} is not a regular file")
            return read_key(path)
        private = read_own_file(path, private=True).strip()
        public_key(private)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise SettingsError(f"the node key {path} cannot be read: {error.strerror}") from None
    except NotOwnFile as error:
        raise SettingsError(f"the node key {path} {error}") from None
    except ValueError:  # its message could contain the key
        raise SettingsError(f"{path} does not hold a private key; remove it, and a worker makes a new one") from None
    return private


def open_to_others(settings: Settings) -> bool:
    """Whether other users can read the key. Only a file named in the settings may be, as mounted secrets often are."""
    return settings.node_key is not None and readable_by_others(settings.node_key)


def ensure_node_key(settings: Settings) -> str:
    """Return the node's private key; make it if there is none yet.

    Raises:
        SettingsError: As `find_node_key`.
        OSError: There is none, and it cannot be written.
    """
    if private := find_node_key(settings):
        return private
    path = node_key_file(settings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # only its owner can read it
    draft = Path(name)
    try:
        with os.fdopen(opened, "w", encoding="ascii") as file:
            file.write(encode_key(os.urandom(32)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another worker was first: all use the same
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    private = find_node_key(settings)
    if private is None:
        raise OSError(f"{path} was removed")
    return private
