"""Authenticates requests with a signature instead of a token (`holdfast.client.signed_requests`)."""

import hmac
import time
from collections.abc import Callable, Mapping

from holdfast.client.signed_requests import (
    DIGEST,
    KEY,
    NONCE,
    SIGNATURE,
    TIMESTAMP,
    SignedParts,
    audience_of,
    digest_of,
)
from holdfast.core.authority.signatures import is_signed
from holdfast.gateway.callers import Caller, Callers
from holdfast.gateway.http.problems import HTTPProblem

WINDOW = 300
"""Seconds by which a timestamp may differ from our clock."""

NONCES = 100_000
"""The most nonces in memory. Only callers with a key can fill it; then signed requests are rejected."""


class SignedRequests:
    """Authenticates signed requests, each once.

    Args:
        callers: The callers with access, and their keys.
        audience: This gateway's URL; None if it is unknown, to reject signed requests.
        now: Returns the time, in seconds since 1970.
    """

    def __init__(self, callers: Callers, audience: str | None, *, now: Callable[[], float] = time.time) -> None:
        self._callers = callers
        self._audience = audience
        self._now = now
        self._since = int(now())
        """The start of this process: its predecessor may have accepted a request that was signed earlier."""
        self._used: dict[tuple[str, str], float] = {}
        """Key and nonce → the time at which the timestamp is too old; roughly the oldest first."""

    def caller(self, method: str, path: str, headers: Mapping[str, str]) -> Caller:
        """Return the caller who signed a request. Check its body afterwards with `check_body`.

        Raises:
            HTTPProblem: 401: the signature is wrong, or too old, or was used before.
        """
        if self._audience is None:
            raise unauthenticated(
                "this gateway accepts no signed requests: HOLDFAST_GATEWAY_URL, which they name, is not set"
            )
        key, timestamp, nonce, digest = (headers.get(name, "") for name in (KEY, TIMESTAMP, NONCE, DIGEST))
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12 and 16 <= len(nonce) <= 100):
            raise unauthenticated(
                f"a signed request has {KEY}, {TIMESTAMP} (seconds), {NONCE} (16 to 100 characters), {DIGEST}"
            )
        caller = self._callers.with_key(key)
        message = SignedParts(self._audience, method, path, digest).signed_bytes(timestamp, nonce)
        if caller is None or not is_signed(key, headers.get(SIGNATURE, ""), message):
            raise unauthenticated(
                f"the signature is wrong, of an unknown key, or for another gateway than {audience_of(self._audience)}"
            )
        if abs(self._now() - int(timestamp)) > WINDOW:
            raise unauthenticated(f"{TIMESTAMP} differs from our clock by more than {WINDOW} s; sign it again")
        if int(timestamp) < self._since:
            raise unauthenticated("it was signed before the gateway began; sign it again")
        self._use((key, nonce), until=int(timestamp) + WINDOW)
        return caller

    def _use(self, nonce: tuple[str, str], *, until: float) -> None:
        now = self._now()
        if nonce in self._used:
            raise unauthenticated(f"this {NONCE} was used before; sign it again with another one")
        if len(self._used) >= NONCES:
            self._used = {used: end for used, end in self._used.items() if end >= now}
        if len(self._used) >= NONCES:
            raise HTTPProblem(503, "too many signed requests within a few minutes; try again")
        self._used[nonce] = until


def check_body(body: bytes, headers: Mapping[str, str]) -> None:
    """Check that a body is the signed one.

    Raises:
        HTTPProblem: 401: it is not.
    """
    if not hmac.compare_digest(digest_of(body).encode(), headers.get(DIGEST, "").encode()):
        raise unauthenticated(f"the body is not the one that was signed: its SHA-256 is not {DIGEST}")


def unauthenticated(detail: str) -> HTTPProblem:
    """Return the problem for an unauthenticated caller."""
    return HTTPProblem(401, detail, headers={"WWW-Authenticate": "Bearer"})
