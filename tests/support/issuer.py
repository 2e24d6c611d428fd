"""A provider of OpenID Connect on a loopback port, which signs in one person without asking, and can be told to lie."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.serving import served

JSON = dict[str, Any]
Sign = Callable[[JSON, RSAKey], str]

CLIENT, SECRET = "holdfast", "s3cret"


def rs256(claims: JSON, key: RSAKey) -> str:
    """Sign as an honest provider does."""
    return jwt.encode({"alg": "RS256", "kid": "1"}, claims, key)


@cache
def new_key(kid: str) -> RSAKey:
    """Return a key: always the same one for an id, because making one takes long."""
    return RSAKey.generate_key(2048, {"kid": kid})


class Issuer:
    """The provider's state, and what it says."""

    def __init__(self) -> None:
        self.url = ""
        self.key = new_key("1")
        self.person: JSON = {"sub": "4711", "email": "alice@corp.example", "email_verified": True}
        self.claims: JSON = {}
        """Claims that replace those of an honest token."""
        self.sign: Sign = rs256
        self.metadata: JSON = {}
        """Fields that replace those of the metadata."""
        self.codes: dict[str, JSON] = {}

    async def discover(self, _: Request) -> Response:
        """Answer with the metadata."""
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        own = {name: f"{self.url}/{path}" for name, path in paths.items()}
        return JSONResponse({"issuer": self.url, **own, **self.metadata})

    async def authorize(self, request: Request) -> Response:
        """Lead the browser back with a code."""
        asked = dict(request.query_params)
        code = secrets.token_hex(8)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.url}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    async def token(self, request: Request) -> Response:
        """Exchange a code once, for the client that proves to have begun."""
        fields = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(fields["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).decode()
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        proven = request.headers.get("authorization") == f"Basic {basic}"
        if asked is None or challenge.rstrip("=") != asked["code_challenge"] or not proven:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": asked["nonce"], **self.person}
        claims = {name: value for name, value in {**claims, **self.claims}.items() if value is not None}
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": self.sign(claims, self.key)})

    async def keys(self, _: Request) -> Response:
        """Answer with the public key."""
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})


@asynccontextmanager
async def serve_issuer() -> AsyncIterator[Issuer]:
    """Serve a provider for a block."""
    issuer = Issuer()
    routes = [
        Route("/.well-known/openid-configuration", issuer.discover),
        Route("/authorize", issuer.authorize),
        Route("/token", issuer.token, methods=["POST"]),
        Route("/keys", issuer.keys),
    ]

    async with served(Starlette(routes=routes)) as url:
        issuer.url = url
        yield issuer


def unsigned(claims: JSON, _: RSAKey) -> str:
    """Return a token of the algorithm `none`."""
    return f"{part({'alg': 'none'})}.{part(claims)}."


def part(value: JSON) -> str:
    """Return a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
