"""Cursors of a list: the Temporal server's tokens as text, with a checksum, so that it reads none but its own."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from holdfast.errors import CursorInvalid

_CHECKSUM_BYTES = 6


def cursor_of(token: bytes) -> str:
    """Return the cursor for a token of the server; empty for none."""
    if not token:
        return ""
    return urlsafe_b64encode(sha256(token).digest()[:_CHECKSUM_BYTES] + token).decode().rstrip("=")


def token_of(cursor: str) -> bytes:
    """Return the server's token in a cursor.

    Raises:
        CursorInvalid: `cursor_of` has not made it.
    """
    try:
        token = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[_CHECKSUM_BYTES:]
    except ValueError:
        raise cursor_invalid() from None
    if cursor_of(token) != cursor:
        raise cursor_invalid()
    return token


def cursor_invalid() -> CursorInvalid:
    """The error for a cursor that no page has given."""
    return CursorInvalid("this is no cursor of a page of threads; leave it out to begin with the first page")
