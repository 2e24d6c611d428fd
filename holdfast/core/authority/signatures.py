"""Ed25519 signatures (RFC 8032), which prove to a run who decided. Pure: they depend only on key and message.

Keys are written as `ed25519:` and 43 characters of URL-safe base64, to fit on a line of YAML. Keys and signatures have
exactly one valid encoding: without padding, in one alphabet, and with no unused bits set.
"""

import base64
import binascii
import hashlib

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PREFIX = "ed25519:"
_KEY_BYTES = 32
SIGNATURE_BYTES = 64


def check_key(text: str) -> str:
    """Return a public key unchanged if it is valid.

    Raises:
        ValueError: The text is not a public key.
    """
    key_bytes(text)
    return text


def public_key(private: str) -> str:
    """Return the public key that belongs to a private key, both as text.

    Raises:
        ValueError: The text is not a private key.
    """
    return SigningKey(private).public


def sign(private: str, message: bytes) -> str:
    """Sign a message with a private key.

    Raises:
        ValueError: The text is not a private key.
    """
    return _text(SigningKey(private).sign(message))


class SigningKey:
    """A private key, decoded once for many signatures.

    Args:
        private: The private key as text.

    Raises:
        ValueError: The text is not a private key.
    """

    def __init__(self, private: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key_bytes(private))
        self.public = PREFIX + _text(self._key.public_key().public_bytes_raw())
        """The public key that belongs to it, as text."""

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the signature of a message."""
        return self._key.sign(message)


def is_signed(public: str, signature: str, message: bytes) -> bool:
    """Whether the message was signed with the private key that belongs to `public`."""
    try:
        return verifies(public, _decoded(signature), message)
    except ValueError:
        return False


def verifies(public: str, signature: bytes, message: bytes) -> bool:
    """As `is_signed`, for a signature in bytes."""
    try:
        Ed25519PublicKey.from_public_bytes(key_bytes(public)).verify(signature, message)
    except (ValueError, InvalidSignature):
        return False
    return len(signature) == SIGNATURE_BYTES


def encode_key(key: bytes) -> str:
    """Encode 32 bytes as the text of a key."""
    return PREFIX + _text(key)


def fingerprint(public: str) -> str:
    """Return the fingerprint of a public key, to be read aloud: 20 hex digits of its SHA-256, in five groups.

    Raises:
        ValueError: The text is not a key.
    """
    digits = hashlib.sha256(key_bytes(public)).hexdigest()[:20]
    return " ".join(digits[start : start + 4] for start in range(0, 20, 4))


def key_bytes(text: str) -> bytes:
    """Return the 32 bytes of a key.

    Raises:
        ValueError: The text is not a key.
    """
    if not text.startswith(PREFIX):
        raise ValueError(f"a key begins with {PREFIX}; `holdfast keygen` makes one")
    key = _decoded(text.removeprefix(PREFIX))
    if len(key) != _KEY_BYTES:
        raise ValueError(f"an Ed25519 key has {_KEY_BYTES} bytes, and this one has {len(key)}")
    return key


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not URL-safe base64") from None
    if _text(data) != text:
        raise ValueError("it is not canonical URL-safe base64 without padding")
    return data


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
