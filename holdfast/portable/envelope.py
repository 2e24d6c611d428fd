"""The DSSE envelope of a portable file's statement: signs it, and reads its signers.

The key id is our text form of the public key, `ed25519:…`, so an envelope names the key that verifies it. Other DSSE
tools can verify it with that key, too.
"""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # public, but not in `__all__`

from holdfast.core.authority.signatures import check_key, key_bytes, public_key
from holdfast.core.base.canonical import canonical
from holdfast.errors import NotPortable
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.manifest import PAYLOAD_TYPE
from holdfast.portable.format.members import STATEMENT

MAX_SIGNATURES = 16


def make_envelope(statement: bytes, private: str | None) -> bytes:
    """Return the envelope of a statement, signed if there is a key.

    Raises:
        ValueError: `private` is not a private key.
    """
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    if private is not None:
        secret = Ed25519PrivateKey.from_private_bytes(key_bytes(private))
        envelope.sign(CryptoSigner(secret, _key(public_key(private))))
    return canonical(envelope.to_dict())


def signers(data: bytes, statement: bytes) -> tuple[str, ...]:
    """Return the public keys that signed an envelope, each verified.

    Args:
        data: The envelope.
        statement: The expected payload.

    Raises:
        Unsound: It is not the envelope of that statement in canonical JSON, or a signature is invalid.
    """
    try:
        envelope = _read(data)
        if canonical(envelope.to_dict()) != data:
            raise Unsound(STATEMENT, "it was altered: it is not an envelope in canonical JSON")
        if envelope.payload_type != PAYLOAD_TYPE or envelope.payload != statement:
            raise Unsound(STATEMENT, "it is about another file: its payload is not what follows from the manifest")
        for name in envelope.signatures:
            check_key(name)
            Envelope(statement, PAYLOAD_TYPE, {name: envelope.signatures[name]}).verify([_key(name)], 1)
        return tuple(envelope.signatures)
    except VerificationError:
        raise Unsound(STATEMENT, "a signature does not verify with the key that it names") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, NotPortable) as error:
        raise Unsound(STATEMENT, f"it was altered: it is no envelope of this format ({type(error).__name__})") from None


def _read(data: bytes) -> Envelope:
    """Read an untrusted envelope."""
    envelope: Any = json.loads(data)
    if len(envelope["signatures"]) > MAX_SIGNATURES:
        raise ValueError("it has too many signatures")
    if any(each.keys() != {"keyid", "sig"} for each in envelope["signatures"]):
        raise ValueError("a signature has other fields than its key and itself")
    return Envelope.from_dict(envelope)


def _key(public: str) -> SSlibKey:
    return SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(key_bytes(public)), keyid=public)
