"""Authenticates requests that are signed instead of having a token (`holdfast.client.signed_requests`)."""

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
"""The most nonces that are remembered. Only callers with a key can fill this; then signed requests are refused."""


class SignedRequests:
    """Authenticates signed requests, each once.

    Args:
        callers: Who has access, with their keys.
        audience: This gateway's URL; None where it is not known, to refuse signed requests.
        now: The time, in seconds since 1970.
    """

    def __init__(self, callers: Callers, audience: str | None, *, now: Callable[[], float] = time.time) -> None:
        self._callers = callers
        self._audience = audience
        self._now = now
        self._since = int(now())
        """A request that was signed before this process began may have been used with its predecessor."""
        self._used: dict[tuple[str, str], float] = {}
        """Key and nonce → when the timestamp will be too old; the oldest first, roughly."""

    def caller(self, method: str, path: str, headers: Mapping[str, str]) -> Caller:
        """The caller who signed a request. Compare its body with the digest afterwards: `check_body`.

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
    """Check that a body is the one that was signed.

    Raises:
        HTTPProblem: 401: it is another one.
    """
    if not hmac.compare_digest(digest_of(body).encode(), headers.get(DIGEST, "").encode()):
        raise unauthenticated(f"the body is not the one that was signed: its SHA-256 is not {DIGEST}")


def unauthenticated(detail: str) -> HTTPProblem:
    """The problem that the caller is not authenticated."""
    return HTTPProblem(401, detail, headers={"WWW-Authenticate": "Bearer"})
