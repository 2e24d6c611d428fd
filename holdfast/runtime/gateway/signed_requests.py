"""Requests signed by an Ed25519 key, in the place of a token: the key never leaves its owner.

Signed is the text `holdfast-request-1`, method, path with query as sent, timestamp, nonce, and SHA-256 of the body in
hex, each on a line of its own. So the signature covers all that the request does, and that it does so once.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.runtime.gateway.callers import Caller, Callers
from holdfast.runtime.gateway.problems import Trouble
from holdfast.signatures import is_signed, public_key, sign

WINDOW = 300
"""Seconds by which a timestamp may differ from our clock."""

NONCES = 100_000
"""Nonces that are remembered. Only those who have a key can fill this; then signed requests wait for room."""

KEY, TIMESTAMP, NONCE, SIGNATURE = "Holdfast-Key", "Holdfast-Timestamp", "Holdfast-Nonce", "Holdfast-Signature"


@dataclass(frozen=True)
class Sent:
    """What a signature covers of a request, but for timestamp and nonce."""

    method: str
    path: str
    """With the query, percent-encoded as it was sent."""
    body: bytes

    def signed_bytes(self, timestamp: str, nonce: str) -> bytes:
        """What is signed."""
        body = hashlib.sha256(self.body).hexdigest()
        return "\n".join(["holdfast-request-1", self.method.upper(), self.path, timestamp, nonce, body]).encode()


def sign_request(private: str, method: str, path: str, body: bytes = b"") -> dict[str, str]:
    """The headers that sign a request.

    Args:
        private: The private key, `ed25519:…`.
        method: `GET`, `POST`.
        path: As it is sent: percent-encoded, with the query.
        body: As it is sent.
    """
    timestamp, nonce = str(int(time.time())), secrets.token_urlsafe(18)
    message = Sent(method, path, body).signed_bytes(timestamp, nonce)
    return {KEY: public_key(private), TIMESTAMP: timestamp, NONCE: nonce, SIGNATURE: sign(private, message)}


class SignedRequests:
    """Tells who has signed a request, and lets each through once.

    Args:
        callers: Whose keys are known.
        now: The time, in seconds since 1970.
    """

    def __init__(self, callers: Callers, *, now: Callable[[], float] = time.time) -> None:
        self._callers = callers
        self._now = now
        self._since = int(now())
        """What was signed before we began may have been used with whoever was here before us."""
        self._used: dict[tuple[str, str], float] = {}
        """Key and nonce → when the timestamp will be too old anyway; the oldest first, roughly."""

    def caller(self, sent: Sent, headers: Mapping[str, str]) -> Caller:
        """Who has signed this request.

        Raises:
            Trouble: 401: the signature is wrong, or too old, or was used before.
        """
        key, timestamp, nonce = (headers.get(name, "") for name in (KEY, TIMESTAMP, NONCE))
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12 and 16 <= len(nonce) <= 100):
            raise unknown(f"a signed request has {KEY}, {TIMESTAMP} (seconds), {NONCE} (16 to 100 characters)")
        caller = self._callers.with_key(key)
        if caller is None or not is_signed(key, headers.get(SIGNATURE, ""), sent.signed_bytes(timestamp, nonce)):
            raise unknown("the signature is wrong, or of a key that is not known here")
        if abs(self._now() - int(timestamp)) > WINDOW:
            raise unknown(f"{TIMESTAMP} differs from our clock by more than {WINDOW} s; sign it again")
        if int(timestamp) < self._since:
            raise unknown("it was signed before the gateway began; sign it again")
        self._use((key, nonce), until=int(timestamp) + WINDOW)
        return caller

    def _use(self, nonce: tuple[str, str], *, until: float) -> None:
        now = self._now()
        if nonce in self._used:
            raise unknown(f"this {NONCE} was used before; sign it again with another one")
        if len(self._used) >= NONCES:
            self._used = {used: end for used, end in self._used.items() if end >= now}
        if len(self._used) >= NONCES:
            raise Trouble(503, "too many signed requests within a few minutes; ask again")
        self._used[nonce] = until


def unknown(detail: str) -> Trouble:
    """Nobody knows who asks."""
    return Trouble(401, detail, headers={"WWW-Authenticate": "Bearer"})
