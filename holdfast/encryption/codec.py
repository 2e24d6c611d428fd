"""Encrypts every payload sent to Temporal with AES-256-GCM, if `HOLDFAST_ENCRYPTION_KEYS` is set.

1. The first key encrypts; every key decrypts. To rotate, put a new key first, on every worker and CLI; remove an old
   key when no run encrypted with it is left.
2. Without keys, payloads are sent in plain text, and reading an encrypted one fails with the id of its key.
3. With a key, a sealed payload in plain text is rejected. `plain` as the last entry of the keys accepts it, while runs
   are open that began before encryption was switched on.
4. An encrypted payload is bound to its key's id and to its place (namespace and workflow id). Its metadata names the
   place, because the Web UI does not send the codec server a payload's workflow; all other readers compare it.
5. The SDK decodes all payloads of a workflow task at once, before the workflow runs: an exception fails the task. So
   the codec of a place passes an undecryptable payload through, with the reason, and the payload converter, which has
   the type of each value, raises it or rejects the value (`holdfast.core.base.models`).
"""

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)

from holdfast.config.encryption_keys import PLAIN, EncryptionKey, parse_keys, split_plain
from holdfast.core.base.canonical import canonical
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.temporal.converter import (
    ENCRYPTED,
    PLACE,
    SEAL,
    DecryptionFailed,
    KeyUnknown,
    PayloadAltered,
    PayloadMisplaced,
    PlaintextRefused,
    data_converter,
    sealing,
    unreadable,
    without_placeholder,
    workflow_of,
)
from holdfast.core.temporal.failures import EncodingFailureConverter

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = [
    "DecryptionFailed",
    "EncryptionCodec",
    "KeyUnknown",
    "PayloadAltered",
    "PayloadMisplaced",
    "PlaintextRefused",
]
"""The errors are defined where payloads are read (`holdfast.core.temporal.converter`)."""

KEY_ID = "encryption-key-id"
NONCE_BYTES = 12


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts and decrypts payloads.

    Args:
        keys: The first encrypts; without keys, nothing is encrypted.
        plain: Accept sealed payloads in plain text although there is a key.
    """

    def __init__(self, keys: Sequence[EncryptionKey] = (), *, plain: bool = False) -> None:
        self._ciphers = _ciphers(keys)
        self._first = keys[0].id if keys else None
        self._plain = plain or not keys
        self._place = b""
        self._passes_on = False
        """Whether undecryptable payloads are passed through instead of raising."""

    @classmethod
    def of(cls, setting: SecretStr | None) -> Self:
        """Build the codec from a validated setting, `Settings.encryption_keys`."""
        keys, plain = split_plain(setting.get_secret_value()) if setting else ("", True)
        return cls(parse_keys(keys) if keys else (), plain=plain)

    def with_context(self, context: SerializationContext) -> Self:
        """Return this codec for the payloads of one workflow."""
        workflow = workflow_of(context)
        bound = copy.copy(self)
        bound._place = canonical(list(workflow)) if workflow else b""
        bound._passes_on = True
        return bound

    @property
    def encrypts(self) -> bool:
        """Whether a key is set."""
        return self._first is not None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads with the first key."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt the encrypted payloads. The codec of a place passes undecryptable ones through.

        Raises:
            KeyUnknown: A payload's key is not set here.
            PayloadAltered: A payload was altered.
            PayloadMisplaced: A payload was encrypted for another workflow.
            PlaintextRefused: A payload is sealed but not encrypted.
        """
        return [(self._decode if self._passes_on else self._decrypt)(payload) for payload in payloads]

    def _decode(self, payload: Payload) -> Payload:
        try:
            return self._decrypt(without_placeholder(payload))
        except DecryptionFailed as error:
            return unreadable(payload, error)

    def _encrypt(self, payload: Payload) -> Payload:
        if self._first is None:
            return payload
        key_id, nonce = self._first.encode(), os.urandom(NONCE_BYTES)
        place = self._place
        encrypted = self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), _bound(key_id, place))
        metadata = {"encoding": ENCRYPTED, KEY_ID: key_id, **({PLACE: place} if place else {})}
        return Payload(metadata=metadata, data=nonce + encrypted)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCRYPTED:
            if SEAL in payload.metadata and not self._plain:
                raise PlaintextRefused(
                    "a sealed payload is not encrypted, although HOLDFAST_ENCRYPTION_KEYS is set here; "
                    f"while older runs are open, add {PLAIN!r} as its last entry"
                )
            return payload
        place = payload.metadata.get(PLACE, b"")
        if place and self._place and place != self._place:
            raise PayloadMisplaced("a payload was encrypted for another workflow")
        key_id = payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")
        if key_id not in self._ciphers:
            raise KeyUnknown(
                f"this was encrypted with the key {key_id!r}, but HOLDFAST_ENCRYPTION_KEYS is not set here"
                if not self._ciphers
                else f"this was encrypted with the key {key_id!r}, but HOLDFAST_ENCRYPTION_KEYS has only "
                f"{', '.join(self._ciphers)} here"
            )
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            bound = _bound(key_id.encode(), place)
            return Payload.FromString(self._ciphers[key_id].decrypt(nonce, encrypted, bound))
        except (InvalidTag, ValueError):
            raise PayloadAltered(
                f"an encrypted payload was altered, or HOLDFAST_ENCRYPTION_KEYS has another key "
                f"with the id {key_id!r} than the one that encrypted it"
            ) from None


def build_converter(codec: EncryptionCodec, seals: FleetKeys) -> DataConverter:
    """Build the data converter of clients and workers: ours, with seals and a codec.

    With an encryption key, the messages and stack traces of failures are encrypted, too.
    """
    converter = dataclasses.replace(data_converter, payload_codec=codec, payload_converter_class=sealing(seals))
    if not codec.encrypts:
        return converter
    return dataclasses.replace(converter, failure_converter_class=EncodingFailureConverter)


def _bound(key_id: bytes, place: bytes) -> bytes:
    """Return the associated data of an encrypted payload."""
    return key_id + b"\0" + place


def _ciphers(keys: Sequence[EncryptionKey]) -> "Mapping[str, AESGCM]":
    if not keys:
        return {}
    # Imported only if needed: it takes a tenth of the CLI's start-up time.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return {key.id: AESGCM(key.secret) for key in keys}
