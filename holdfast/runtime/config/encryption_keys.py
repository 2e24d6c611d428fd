"""Keys by id, as the settings `HOLDFAST_ENCRYPTION_KEYS` and `HOLDFAST_FLEET_KEYS` have them: `id1:BASE64,id0:BASE64`.
The first encrypts or seals, all decrypt or verify.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field

KEY_BYTES = 32

PLAIN = "plain"
"""An entry of `HOLDFAST_ENCRYPTION_KEYS` that is no key: plain text of older runs is still read."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_HOW = "write id:KEY, with commas between several, where KEY comes from `openssl rand -base64 32`"


@dataclass(frozen=True)
class EncryptionKey:
    """A key of 256 bits. It shows its id only."""

    id: str
    """Goes with every payload, readable, so that the right key is found."""
    secret: bytes = field(repr=False)
    text: str = field(repr=False)
    """As the setting has it."""


def parse_keys(setting: str) -> tuple[EncryptionKey, ...]:
    """The keys of the setting, in its order.

    Raises:
        ValueError: It cannot be used. The message names the place, and never shows what stands there.
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
            raise ValueError(f"{where} ({key_id!r}) has {len(secret)} bytes, and not {KEY_BYTES}; {_HOW}")
        if key_id in {known.id for known in keys}:
            raise ValueError(f"two keys have the id {key_id!r}; a new key needs a new id")
        keys.append(EncryptionKey(key_id, secret, text.strip()))
    return tuple(keys)


def split_plain(setting: str) -> tuple[str, bool]:
    """The keys of `HOLDFAST_ENCRYPTION_KEYS` alone, and whether plain text is allowed beside them."""
    keys, comma, last = setting.rpartition(",")
    return (keys, True) if comma and last.strip() == PLAIN else (setting, False)


def _decoded(text: str) -> bytes | None:
    standard = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
