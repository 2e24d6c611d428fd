"""Sign a request to the gateway with an Ed25519 key instead of a token: the key never leaves its owner.

The signature covers the text `holdfast-request-2`, the audience, method, path with query as sent, timestamp, nonce,
and SHA-256 of the body in hex, each on its own line. It is therefore valid for one request, once, at one gateway: the
audience is that gateway's URL. The body's digest is also a header, so that the signature is checked before the body is
read.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.core.authority.signatures import public_key, sign

KEY, TIMESTAMP, NONCE, SIGNATURE = "Holdfast-Key", "Holdfast-Timestamp", "Holdfast-Nonce", "Holdfast-Signature"
DIGEST = "Holdfast-Digest"


@dataclass(frozen=True)
class SignedParts:
    """The parts of a request that a signature covers, besides timestamp and nonce."""

    audience: str
    """The URL of the gateway that the request is for."""
    method: str
    path: str
    """The path with the query, percent-encoded as it was sent."""
    digest: str
    """SHA-256 of the body, in hex."""

    def signed_bytes(self, timestamp: str, nonce: str) -> bytes:
        """Return the bytes to sign."""
        parts = [audience_of(self.audience), self.method.upper(), self.path, timestamp, nonce, self.digest]
        return "\n".join(["holdfast-request-2", *parts]).encode()


def audience_of(url: str) -> str:
    """Return a gateway's URL in its signed form: scheme and host in lower case, without a trailing slash."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def digest_of(body: bytes) -> str:
    """Return a body's digest, as in a signed request."""
    return hashlib.sha256(body).hexdigest()


def sign_request(private: str, method: str, path: str, body: bytes = b"", *, audience: str) -> dict[str, str]:
    """Return the headers that sign a request.

    Args:
        private: The private key, `ed25519:…`.
        method: `GET`, `POST`.
        path: The path as it is sent: percent-encoded, with the query.
        body: The body as it is sent.
        audience: The gateway's URL, as in its `HOLDFAST_GATEWAY_URL`; every other gateway rejects the signature.
    """
    timestamp, nonce = str(int(time.time())), secrets.token_urlsafe(18)
    sent = SignedParts(audience, method, path, digest_of(body))
    signature = sign(private, sent.signed_bytes(timestamp, nonce))
    return {KEY: public_key(private), TIMESTAMP: timestamp, NONCE: nonce, DIGEST: sent.digest, SIGNATURE: signature}
