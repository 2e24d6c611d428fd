"""Requests signed by an Ed25519 key, in the place of a token: the key never leaves its owner.

Signed is the text `holdfast-request-2`, the audience, method, path with query as sent, timestamp, nonce, and SHA-256 of
the body in hex, each on a line of its own. So the signature covers all that the request does, that it does so once, and
at one gateway: the audience is that gateway's URL. The body's digest is also a header, so that the signature is checked
before the body is read.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.authority.signatures import is_signed, public_key, sign
from holdfast.runtime.gateway.callers import Caller, Callers
from holdfast.runtime.gateway.problems import Trouble

WINDOW = 300
"""Seconds by which a timestamp may differ from our clock."""

NONCES = 100_000
"""Nonces that are remembered. Only those who have a key can fill this; then signed requests wait for room."""

KEY, TIMESTAMP, NONCE, SIGNATURE = "Holdfast-Key", "Holdfast-Timestamp", "Holdfast-Nonce", "Holdfast-Signature"
DIGEST = "Holdfast-Digest"


@dataclass(frozen=True)
class Sent:
    """What a signature covers of a request, but for timestamp and nonce."""

    audience: str
    """The URL of the gateway that it is for."""
    method: str
    path: str
    """With the query, percent-encoded as it was sent."""
    digest: str
    """SHA-256 of the body, in hex."""

    def signed_bytes(self, timestamp: str, nonce: str) -> bytes:
        """What is signed."""
        said = [audience_of(self.audience), self.method.upper(), self.path, timestamp, nonce, self.digest]
        return "\n".join(["holdfast-request-2", *said]).encode()


def audience_of(url: str) -> str:
    """A gateway's URL as it is signed: scheme and host in lower case, no slash at the end."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def digest_of(body: bytes) -> str:
    """A body's digest, as a signed request has it."""
    return hashlib.sha256(body).hexdigest()


def sign_request(private: str, method: str, path: str, body: bytes = b"", *, audience: str) -> dict[str, str]:
    """The headers that sign a request.

    Args:
        private: The private key, `ed25519:…`.
        method: `GET`, `POST`.
        path: As it is sent: percent-encoded, with the query.
        body: As it is sent.
        audience: The gateway's URL, as its `HOLDFAST_GATEWAY_URL` has it; no other gateway takes the signature.
    """
    timestamp, nonce = str(int(time.time())), secrets.token_urlsafe(18)
    sent = Sent(audience, method, path, digest_of(body))
    signature = sign(private, sent.signed_bytes(timestamp, nonce))
    return {KEY: public_key(private), TIMESTAMP: timestamp, NONCE: nonce, DIGEST: sent.digest, SIGNATURE: signature}


class SignedRequests:
    """Tells who has signed a request, and lets each through once.

    Args:
        callers: Whose keys are known.
        audience: This gateway's URL; None for one that has no name, and so takes no signed requests.
        now: The time, in seconds since 1970.
    """

    def __init__(self, callers: Callers, audience: str | None, *, now: Callable[[], float] = time.time) -> None:
        self._callers = callers
        self._audience = audience
        self._now = now
        self._since = int(now())
        """What was signed before we began may have been used with whoever was here before us."""
        self._used: dict[tuple[str, str], float] = {}
        """Key and nonce → when the timestamp will be too old anyway; the oldest first, roughly."""

    def caller(self, method: str, path: str, headers: Mapping[str, str]) -> Caller:
        """Who has signed this request. Its body has yet to be compared with the digest: `check_body`.

        Raises:
            Trouble: 401: the signature is wrong, or too old, or was used before.
        """
        if self._audience is None:
            raise unknown("this gateway takes no signed requests: HOLDFAST_GATEWAY_URL, whom they are for, is not set")
        key, timestamp, nonce, digest = (headers.get(name, "") for name in (KEY, TIMESTAMP, NONCE, DIGEST))
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12 and 16 <= len(nonce) <= 100):
            raise unknown(
                f"a signed request has {KEY}, {TIMESTAMP} (seconds), {NONCE} (16 to 100 characters), {DIGEST}"
            )
        caller = self._callers.with_key(key)
        message = Sent(self._audience, method, path, digest).signed_bytes(timestamp, nonce)
        if caller is None or not is_signed(key, headers.get(SIGNATURE, ""), message):
            raise unknown(
                "the signature is wrong, of a key that is not known here, or for another gateway than "
                f"{audience_of(self._audience)}"
            )
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


def check_body(body: bytes, headers: Mapping[str, str]) -> None:
    """See that a body is the one that was signed.

    Raises:
        Trouble: 401: it is another one.
    """
    if not hmac.compare_digest(digest_of(body).encode(), headers.get(DIGEST, "").encode()):
        raise unknown(f"the body is not the one that was signed: its SHA-256 is not {DIGEST}")


def unknown(detail: str) -> Trouble:
    """Nobody knows who asks."""
    return Trouble(401, detail, headers={"WWW-Authenticate": "Bearer"})
