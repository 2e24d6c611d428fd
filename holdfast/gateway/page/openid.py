"""Reads who somebody is from an OpenID Connect provider: its metadata, the exchange of a code, and the ID token.

1. Every address comes from the metadata of the configured issuer, which has to name it. No redirect is followed.
2. A token is signed with an asymmetric algorithm of a fixed list, by a key of the issuer; the token's header chooses
   nothing beyond that list. So `none`, and a public key used as a shared secret, are refused.
3. It is for this client alone, has not expired, and has the nonce of this sign-in.
"""

import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeGuard
from urllib.parse import quote_plus, urlsplit

import httpx2
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from holdfast.config.page_links import LOOPBACK
from holdfast.gateway.callers import OpenIDProvider

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
SECONDS = 10.0
"""Time limit of a request to the provider."""
BYTES = 500_000
"""The largest response of the provider."""
LEEWAY = 60
"""Seconds by which clocks may differ."""
OLDEST = 600
"""The most seconds since an ID token was issued."""
METADATA_SECONDS = 3_600


class NotIdentified(Exception):
    """The provider, or somebody in its place, has not said who the person is. The text is safe to show."""


@dataclass(frozen=True)
class Metadata:
    """The provider's addresses."""

    authorize: str
    token: str
    keys: str


class OpenID:
    """A client of one provider.

    Args:
        provider: The provider.
        secret: The client's secret; empty for a public client, which PKCE alone protects.
    """

    def __init__(self, provider: OpenIDProvider, secret: str) -> None:
        self.provider = provider
        self._secret = secret
        self._metadata: tuple[Metadata, float] | None = None

    async def metadata(self) -> Metadata:
        """Return the provider's addresses.

        Raises:
            NotIdentified: They cannot be read, or are not the provider's.
        """
        if self._metadata and time.monotonic() - self._metadata[1] < METADATA_SECONDS:
            return self._metadata[0]
        issuer = self.provider.issuer
        found = await _fetch("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise NotIdentified(f"the metadata of {issuer} names another issuer")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        authorize, token, keys = (_address(found.get(name), name) for name in names)
        self._metadata = Metadata(authorize, token, keys), time.monotonic()
        return self._metadata[0]

    async def identify(self, code: str, *, verifier: str, nonce: str, redirect: str) -> str:
        """Exchange a code, and return the value of the claim that identifies the person.

        Args:
            code: As the browser brought it.
            verifier: The secret of PKCE, of this sign-in.
            nonce: The nonce of this sign-in.
            redirect: The address to which the provider has sent the browser.

        Raises:
            NotIdentified: The provider gave no token for this client and this sign-in.
        """
        metadata = await self.metadata()
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        client = quote_plus(self.provider.client_id)
        auth = (client, quote_plus(self._secret)) if self._secret else None
        if auth is None:
            fields["client_id"] = self.provider.client_id
        answer = await _fetch("POST", metadata.token, data=fields, auth=auth)
        if not isinstance(token := answer.get("id_token"), str):
            raise NotIdentified("the provider gave no ID token")
        claims = self._claims(token, await _fetch("GET", metadata.keys))
        self._check(claims, nonce, now=time.time())
        return self._person(claims)

    def _claims(self, token: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of a token that a key of the provider has signed."""
        try:
            return jwt.decode(token, KeySet.import_key_set({"keys": keys["keys"]}), algorithms=ALGORITHMS).claims
        except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotIdentified(
                f"the ID token is not signed by {self.provider.issuer} ({type(error).__name__})"
            ) from None

    def _check(self, claims: Mapping[str, Any], nonce: str, *, now: float) -> None:
        """Check that a token was issued by this provider, for this client and this sign-in, just now."""
        client, audience = self.provider.client_id, claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        given, expires, issued = (claims.get(name) for name in ("nonce", "exp", "iat"))
        if claims.get("iss") != self.provider.issuer:
            raise NotIdentified("the ID token is of another issuer")
        if (
            client not in audiences
            or claims.get("azp", client) != client
            or (len(audiences) > 1 and "azp" not in claims)
        ):
            raise NotIdentified("the ID token is for another client")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
            raise NotIdentified("the ID token is of another sign-in")
        if not _is_time(expires) or expires <= now - LEEWAY:
            raise NotIdentified("the ID token has expired")
        if not _is_time(issued) or not now - OLDEST <= issued <= now + LEEWAY:
            raise NotIdentified("the ID token was not issued just now; compare the clocks")

    def _person(self, claims: Mapping[str, Any]) -> str:
        """Return the value that identifies the person."""
        value = claims.get(self.provider.claim)
        if not isinstance(value, str) or not value:
            raise NotIdentified(f"the ID token has no claim {self.provider.claim}")
        if self.provider.claim == "email" and claims.get("email_verified") is not True:
            raise NotIdentified("the provider has not verified the email address")
        return value


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf


def _address(value: Any, name: str) -> str:
    """Return an address of the metadata that may be used."""
    parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        return str(value)
    raise NotIdentified(f"{name} in the provider's metadata is no https:// address")


async def _fetch(method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the JSON object at an address of the provider."""
    try:
        async with (
            httpx2.AsyncClient(follow_redirects=False, timeout=SECONDS) as http,
            http.stream(method, url, headers={"Accept": "application/json"}, **options) as response,
        ):
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > BYTES:
                    raise NotIdentified("the provider's answer is too large")
        value = json.loads(content) if response.status_code == httpx2.codes.OK else None
    except (httpx2.HTTPError, OSError, ValueError, RecursionError) as error:
        raise NotIdentified(f"the provider cannot be asked ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise NotIdentified(f"the provider answered with status {response.status_code}, and no JSON object")
    return value
