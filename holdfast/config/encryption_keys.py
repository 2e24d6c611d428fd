"""Keys by id, in the format of `HOLDFAST_ENCRYPTION_KEYS` and `HOLDFAST_FLEET_KEYS`: `id1:BASE64,id0:BASE64`.
The first key encrypts or seals; every key decrypts or verifies.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field

KEY_BYTES = 32

PLAIN = "plain"
"""An entry of `HOLDFAST_ENCRYPTION_KEYS` that is not a key: it allows plain text from older runs."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_HOW = "write id:KEY, several separated by commas; `openssl rand -base64 32` makes a KEY"


@dataclass(frozen=True)
class EncryptionKey:
    """A 256-bit key. Its `repr` shows the id only."""

    id: str
    """Stored in clear text with every payload, to find the key that decrypts it."""
    secret: bytes = field(repr=False)
    text: str = field(repr=False)
    """The key as written in the setting."""


def parse_keys(setting: str) -> tuple[EncryptionKey, ...]:
    """Parse the keys of a setting, in their order.

    Raises:
        ValueError: The setting is malformed. The message gives the position of the key, never its text.
    """
    keys: list[EncryptionKey] = []
    for number, entry in enumerate(setting.split(","), start=1):
        key_id, colon, text = entry.strip().partition(":")
        where = f"key {number}"
        if not colon or not _ID.fullmatch(key_id):
            raise ValueError(f"{where} has no id of letters, digits, '_', '.' or '-'; {_HOW}")
        secret = _decoded(text.strip())
        if secret is None:
            raise ValueError(f"{where} ({key_id!r}) is not base64; {_HOW}")
        if len(secret) != KEY_BYTES:
            raise ValueError(f"{where} ({key_id!r}) has {len(secret)} bytes instead of {KEY_BYTES}; {_HOW}")
        if key_id in {known.id for known in keys}:
            raise ValueError(f"two keys have the id {key_id!r}; give each key an id of its own")
        keys.append(EncryptionKey(key_id, secret, text.strip()))
    return tuple(keys)


def split_plain(setting: str) -> tuple[str, bool]:
    """Split `HOLDFAST_ENCRYPTION_KEYS` into its keys and whether its last entry allows plain text."""
    keys, comma, last = setting.rpartition(",")
    return (keys, True) if comma and last.strip() == PLAIN else (setting, False)


def _decoded(text: str) -> bytes | None:
    standard = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
