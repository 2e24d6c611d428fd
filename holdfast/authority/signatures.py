"""Ed25519 signatures, by which a run knows who decided (RFC 8032). Pure: a signature depends on key and text alone.

Keys are written as `ed25519:` and 43 characters of URL-safe base64, so that they fit into a line of YAML. Keys and
signatures have one spelling each: without padding, in one alphabet, and with no bit that means nothing.
"""

import base64
import binascii

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PREFIX = "ed25519:"
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64


def check_key(text: str) -> str:
    """Return a public key as it was written.

    Raises:
        ValueError: It is none.
    """
    _bytes_of_key(text)
    return text


def public_key(private: str) -> str:
    """The public key that belongs to a private one, both as text.

    Raises:
        ValueError: That is no private key.
    """
    key = Ed25519PrivateKey.from_private_bytes(_bytes_of_key(private))
    return PREFIX + _text(key.public_key().public_bytes_raw())


def sign(private: str, message: bytes) -> str:
    """Sign a message with a private key.

    Raises:
        ValueError: That is no private key.
    """
    return _text(Ed25519PrivateKey.from_private_bytes(_bytes_of_key(private)).sign(message))


def is_signed(public: str, signature: str, message: bytes) -> bool:
    """Whether the message was signed with the private key that belongs to `public`."""
    try:
        given = _decoded(signature)
        Ed25519PublicKey.from_public_bytes(_bytes_of_key(public)).verify(given, message)
    except (ValueError, InvalidSignature):
        return False
    return len(given) == _SIGNATURE_BYTES


def encode_key(key: bytes) -> str:
    """32 bytes as the text of a key."""
    return PREFIX + _text(key)


def _bytes_of_key(text: str) -> bytes:
    if not text.startswith(PREFIX):
        raise ValueError(f"a key begins with {PREFIX}; `starter.py keygen` makes one")
    key = _decoded(text.removeprefix(PREFIX))
    if len(key) != _KEY_BYTES:
        raise ValueError(f"an Ed25519 key has {_KEY_BYTES} bytes, and this one {len(key)}")
    return key


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("that is no URL-safe base64") from None
    if _text(data) != text:
        raise ValueError("that is not the one way to write it in URL-safe base64, without padding")
    return data


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
