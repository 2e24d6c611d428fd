"""Encrypts what goes to Temporal: AES-256-GCM over every payload, switched on by `HOLDFAST_ENCRYPTION_KEYS`.

1. The first key encrypts, all decrypt. To rotate, put a new one in front, on every worker and CLI; take an old one
   out when no run is left that it encrypted.
2. Without keys nothing is encrypted, and a payload that is says which key it needs.
3. What is not encrypted is read as it is: runs that began before encryption was switched on go on.
4. An encrypted payload is bound to its key's id. Nothing else is bound: the Web UI's codec server is not told where a
   payload belongs.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from holdfast.errors import HoldfastError
from holdfast.payloads import data_converter
from holdfast.runtime.encryption_keys import EncryptionKey, parse_keys
from holdfast.sealed import ENCRYPTED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_ID = "encryption-key-id"
NONCE_BYTES = 12


class DecryptionFailed(HoldfastError):
    """An encrypted payload cannot be read."""


class KeyUnknown(DecryptionFailed):
    """It was encrypted with a key that is not set here."""


class PayloadAltered(DecryptionFailed):
    """It is not what was encrypted, or the key is another one than its id says."""


class EncryptionCodec(PayloadCodec):
    """Encrypts and decrypts payloads.

    Args:
        keys: The first encrypts; without any, nothing is.
    """

    def __init__(self, keys: Sequence[EncryptionKey] = ()) -> None:
        self._ciphers = _ciphers(keys)
        self._first = keys[0].id if keys else None

    @classmethod
    def of(cls, setting: SecretStr | None) -> Self:
        """The codec of a setting (`Settings.encryption_keys`), which has been checked."""
        return cls(parse_keys(setting.get_secret_value()) if setting else ())

    @property
    def encrypts(self) -> bool:
        """Whether there is a key to encrypt with."""
        return self._first is not None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt, with the first key."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what is encrypted.

        Raises:
            KeyUnknown: The key is not set here.
            PayloadAltered: It is not what was encrypted.
        """
        return [self._decrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        if self._first is None:
            return payload
        key_id, nonce = self._first.encode(), os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), key_id)
        return Payload(metadata={"encoding": ENCRYPTED, KEY_ID: key_id}, data=nonce + sealed)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCRYPTED:
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")
        if key_id not in self._ciphers:
            raise KeyUnknown(
                f"this was encrypted with the key {key_id!r}, and HOLDFAST_ENCRYPTION_KEYS is not set here"
                if not self._ciphers
                else f"this was encrypted with the key {key_id!r}, and HOLDFAST_ENCRYPTION_KEYS has only "
                f"{', '.join(self._ciphers)} here"
            )
        from cryptography.exceptions import InvalidTag

        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            return Payload.FromString(self._ciphers[key_id].decrypt(nonce, sealed, key_id.encode()))
        except (InvalidTag, ValueError):
            raise PayloadAltered(
                f"an encrypted payload was altered, or the key {key_id!r} of HOLDFAST_ENCRYPTION_KEYS "
                "is not the one that encrypted it"
            ) from None


def encrypting(codec: EncryptionCodec) -> DataConverter:
    """The data converter of clients and workers: `holdfast.payloads.data_converter` with a codec.

    With a key, the words and stack traces of failures are encrypted, too.
    """
    if not codec.encrypts:
        return dataclasses.replace(data_converter, payload_codec=codec)
    return dataclasses.replace(
        data_converter, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )


def _ciphers(keys: Sequence[EncryptionKey]) -> "Mapping[str, AESGCM]":
    if not keys:
        return {}
    # Imported by those who encrypt: it takes a tenth of what the whole CLI takes to start.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return {key.id: AESGCM(key.secret) for key in keys}
