"""Sign-ins under way, kept by the browsers that began them: sealed in a cookie, which every gateway with the key opens.

1. The gateway keeps nothing about a sign-in, so nobody can use up its memory, or end the sign-ins of others.
2. The cookie is encrypted and authenticated (AES-GCM), for one page, provider and client. A browser cannot read or make
   one; a cookie of another page, provider or client does not open.
3. It counts for `FLOW_SECONDS`. A copy of it can be presented again, and the provider exchanges a code only once.
4. The key follows from a secret that all gateways of one page have: the client's secret at the provider, or else the
   gateway's private key. Without either it is random, and a sign-in has to end at the gateway where it began.
"""

import hashlib
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FLOW_SECONDS = 600
COOKIE_CHARS = 4_000
"""The longest cookie that is opened; a browser keeps 4,096 characters with its name."""
_NONCE = 12
_SALT = b"holdfast page: sign-ins under way"


@dataclass(frozen=True)
class Flow:
    """A sign-in under way."""

    next: str
    """The path of the page to go to afterwards."""
    until: float
    """In seconds since 1970."""
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        """The digest of the verifier, for PKCE."""
        return urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")


def flow_key(*, openid_secret: str, gateway_key: str) -> bytes:
    """Return the key of the cookies: of the first of these secrets that there is, else a random one.

    Args:
        openid_secret: The client's secret at the provider; empty for none.
        gateway_key: The gateway's private key; empty for none.
    """
    if not (secret := openid_secret or gateway_key):
        return secrets.token_bytes(32)
    # Slow, because people may have chosen the client's secret, and anybody can get a cookie to test guesses on.
    return hashlib.scrypt(secret.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=32)


class Flows:
    """Seals and opens the cookies of sign-ins under way.

    Args:
        key: From `flow_key`.
        place: The page, the provider and the client that the cookies are for.
    """

    def __init__(self, key: bytes, *place: str) -> None:
        self._cipher = AESGCM(key)
        self._place = json.dumps(place).encode()

    def seal(self, flow: Flow) -> str:
        """Return a sign-in as the value of a cookie."""
        nonce = secrets.token_bytes(_NONCE)
        content = json.dumps(asdict(flow)).encode()
        return urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, content, self._place)).decode()

    def open(self, cookie: str, *, now: float) -> Flow | None:
        """Return the sign-in in a cookie; None if it was not sealed here for this place, or has ended.

        Args:
            cookie: The value that the browser sent.
            now: The time, in seconds since 1970.
        """
        if not cookie or len(cookie) > COOKIE_CHARS:
            return None
        try:
            sealed = urlsafe_b64decode(cookie.encode())
            flow = Flow(**json.loads(self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._place)))
        except (ValueError, TypeError, InvalidTag):
            return None
        return flow if flow.until > now else None
