"""Attacks on signing in with an OpenID Connect provider: forged, foreign and replayed tokens, states and addresses."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send
from temporalio.client import Client

from holdfast.client.threads import Threads
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Identity, OpenIDProvider
from holdfast.gateway.http.limits import Limits
from holdfast.gateway.http.quotas import Quota
from holdfast.gateway.page.flows import FLOW_SECONDS, Flow, Flows, flow_key
from tests.support.issuer import CLIENT, SECRET, Issuer, new_key, part, rs256, serve_issuer, unsigned
from tests.support.pages import ALL
from tests.support.serving import served

JSON = dict[str, Any]
PLENTY = Quota(at_once=100, a_second=100_000, burst=100_000)
FROM_PROVIDER = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


class Browser:
    """A browser that follows the redirects of a sign-in step by step."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.AsyncClient(base_url=url, timeout=60.0, trust_env=False)

    async def begin(self, next: str = "/page/key") -> str:
        """Begin to sign in, and return the address to which the provider leads back."""
        began = await self.http.get("/page/openid/begin", params={"next": next})
        assert began.status_code == 303, began.text
        async with httpx2.AsyncClient(trust_env=False) as plain:
            return str((await plain.get(began.headers["location"])).headers["location"])

    async def finish(self, address: str) -> httpx2.Response:
        """Follow the provider's redirect."""
        return await self.http.get(address, headers=FROM_PROVIDER)

    async def sign_in(self, next: str = "/page/key") -> httpx2.Response:
        """Sign in."""
        return await self.finish(await self.begin(next))

    async def is_in(self) -> bool:
        """Whether somebody is signed in."""
        return (await self.http.get("/page/key")).status_code == 200


class Site:
    """A page behind one address, and the gateway that its proxy chooses."""

    def __init__(self) -> None:
        self.gateways: list[Limits] = []
        self.chosen = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self.gateways[self.chosen](scope, receive, send)


@asynccontextmanager
async def page_with(
    client: Client, issuer: Issuer, *, claim: str = "email", site: Site | None = None, gateways: int = 1
) -> AsyncIterator[str]:
    """Serve a page on which Alice signs in with the provider; yield its address."""
    people = (Identity(name="alice", value=issuer.person[claim], scopes=ALL),)
    provider = OpenIDProvider(issuer=issuer.url, client_id=CLIENT, claim=claim, people=people)
    site = site or Site()
    async with served(site) as url:
        for _ in range(gateways):
            threads, callers = Threads(client, task_queue="none"), Callers(CallersFile(openid=provider))
            built = build_app(threads, callers, page=url, openid_secret=SECRET, each_address=PLENTY)
            site.gateways.append(built)
        yield url


def by_another_key(claims: JSON, _: RSAKey) -> str:
    """Sign with a key of somebody else, under the provider's key id."""
    return jwt.encode({"alg": "RS256", "kid": "1"}, claims, new_key("2"))


def with_its_own_key(claims: JSON, _: RSAKey) -> str:
    """Sign with a key that the token's header brings along."""
    own = new_key("2")
    return jwt.encode({"alg": "RS256", "jwk": own.as_dict(private=False)}, claims, own)


def confused(claims: JSON, key: RSAKey) -> str:
    """Use the provider's public key as a shared secret."""
    signed = f"{part({'alg': 'HS256', 'kid': '1'})}.{part(claims)}"
    mac = hmac.new(key.as_pem(private=False), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{urlsafe_b64encode(mac).decode().rstrip('=')}"


async def test_a_provider_names_the_person(client: Client) -> None:
    """The person whom the provider names is signed in with the scopes of the file, and led to the page that they
    wanted; a person whom the file does not name is not.
    """
    async with serve_issuer() as issuer, page_with(client, issuer) as url:
        browser = Browser(url)
        assert f"Sign in with {urlsplit(issuer.url).netloc}" in (await browser.http.get("/page/sign-in")).text
        done = await browser.sign_in("/page/key?x=1")
        assert (done.status_code, done.headers["location"]) == (303, "/page/key?x=1")
        assert "SameSite=Strict" in done.headers.get_list("set-cookie")[0]
        assert "Signed in as <bdi>alice</bdi>" in (await browser.http.get("/page/key")).text
        issuer.person["email"] = "mallory@corp.example"
        stranger = Browser(url)
        assert "has no person under that name" in (await stranger.sign_in()).text
        assert not await stranger.is_in()
        await browser.http.aclose()
        await stranger.http.aclose()


async def test_no_forged_token_signs_anybody_in(client: Client) -> None:
    """A token without a signature, by another key, of another algorithm, issuer, client, sign-in or time, and an
    address that nobody has verified, sign nobody in.
    """
    async with serve_issuer() as issuer, page_with(client, issuer) as url:
        for sign in (unsigned, by_another_key, with_its_own_key, confused, lambda claims, key: "x.y.z"):
            browser, issuer.sign = Browser(url), sign
            assert "is not signed by" in (await browser.sign_in()).text, sign
            assert not await browser.is_in()
            await browser.http.aclose()
        issuer.sign = rs256
        wrong: list[tuple[JSON, str]] = [
            ({"iss": "https://evil.example"}, "of another issuer"),
            ({"iss": None}, "of another issuer"),
            ({"aud": "another-client"}, "for another client"),
            ({"aud": [CLIENT, "another-client"]}, "for another client"),
            ({"aud": None}, "for another client"),
            ({"azp": "another-client"}, "for another client"),
            ({"nonce": "of-another-sign-in"}, "of another sign-in"),
            ({"nonce": None}, "of another sign-in"),
            ({"exp": 1_000}, "has expired"),
            ({"exp": "9999999999"}, "has expired"),
            ({"exp": True}, "has expired"),
            ({"exp": float("nan")}, "has expired"),
            ({"iat": 1_000}, "not issued just now"),
            ({"email_verified": "true"}, "has not verified"),
            ({"email": ["alice@corp.example"]}, "has no claim email"),
        ]
        for claims, why in wrong:
            browser, issuer.claims = Browser(url), claims
            assert why in (await browser.sign_in()).text, claims
            assert not await browser.is_in()
            await browser.http.aclose()


@pytest.mark.extended
async def test_a_sign_in_counts_once_in_the_browser_that_began_it(client: Client) -> None:
    """An answer that is replayed, brought to another browser, has another state, or names another provider is refused,
    and so is a code of another sign-in; nobody is led to another site.
    """
    async with serve_issuer() as issuer, page_with(client, issuer) as url:
        one, other, third = Browser(url), Browser(url), Browser(url)
        address = await one.begin()
        assert (await other.finish(address)).status_code == 403, "a victim is led into the attacker's sign-in"
        theirs = await other.begin()
        assert (await other.finish(address)).status_code == 403, "with a sign-in of its own under way"
        assert not await other.is_in()
        assert (await one.finish(address)).status_code == 303
        cookie = one.http.cookies
        assert (await one.finish(address)).status_code == 403, "replayed"
        assert cookie is one.http.cookies

        mine = await third.begin()
        stolen = mine.replace(parse_qs(urlsplit(mine).query)["code"][0], parse_qs(urlsplit(theirs).query)["code"][0])
        assert "answered with status 400" in (await third.finish(stolen)).text, "PKCE binds the code"
        mixed = (await third.begin()).replace("iss=http", "iss=https")
        assert (await third.finish(mixed)).status_code == 403
        for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, {"Host": "evil.example"}):
            assert (await third.http.get("/page/openid/begin", headers=headers)).status_code == 403
        assert not await third.is_in()
        for next in ("https://evil.example/", "//evil.example", "/page//evil.example"):
            assert (await third.sign_in(next)).headers["location"] == "/page/inbox"
        for browser in (one, other, third):
            await browser.http.aclose()


@pytest.mark.extended
async def test_a_sign_in_ends_at_any_gateway_of_the_page(client: Client) -> None:
    """A sign-in that began at one gateway ends at another, once: a copy of its cookie and its answer signs nobody in a
    second time, at either, because the provider exchanges no code twice.
    """
    site = Site()
    async with serve_issuer() as issuer, page_with(client, issuer, site=site, gateways=2) as url:
        browser, thief = Browser(url), Browser(url)
        address = await browser.begin()
        thief.http.cookies.update(browser.http.cookies)
        site.chosen = 1
        assert (await browser.finish(address)).status_code == 303
        assert await browser.is_in()
        assert not any(name.endswith("-openid") for name in browser.http.cookies)
        for site.chosen in (0, 1):
            refused = await thief.finish(address)
            assert (refused.status_code, await thief.is_in()) == (403, False)
        for each in (browser, thief):
            await each.http.aclose()


@pytest.mark.extended
async def test_strangers_end_no_sign_in(client: Client) -> None:
    """However many sign-ins strangers begin, those under way go on; an answer with a wrong state ends none either."""
    async with serve_issuer() as issuer, page_with(client, issuer) as url:
        browser, stranger = Browser(url), Browser(url)
        address = await browser.begin()
        for _ in range(100):  # the gateway keeps nothing of them
            assert (await stranger.http.get("/page/openid/begin")).status_code == 303
        led = await browser.finish("/page/openid/callback?code=x&state=planted")
        assert led.status_code == 403
        assert (await browser.finish(address)).status_code == 303
        assert await browser.is_in()
        for each in (browser, stranger):
            await each.http.aclose()


def test_a_cookie_counts_for_its_place_and_time_alone() -> None:
    """A cookie of another key, page, provider or client, one that was altered, is too long or too old, or is none, is
    no sign-in; equal secrets make equal keys, and a gateway without any has a key of its own.
    """
    key, place = flow_key(openid_secret=SECRET, gateway_key=""), ("https://page", "https://issuer", CLIENT)
    flows, flow = Flows(key, *place), Flow("/page/inbox", until=FLOW_SECONDS)
    sealed = flows.seal(flow)
    assert Flows(flow_key(openid_secret=SECRET, gateway_key="k"), *place).open(sealed, now=0.0) == flow
    assert flow.verifier not in sealed
    assert flows.seal(flow) != sealed
    assert len(flows.seal(Flow("/page/" + "x" * 1_994, until=1.0))) < 3_900, "browsers keep 4,096 with the name"
    assert flows.open(sealed, now=FLOW_SECONDS) is None
    for other in (
        Flows(flow_key(openid_secret="", gateway_key=SECRET + "x"), *place),
        Flows(flow_key(openid_secret="", gateway_key=""), *place),
        *(Flows(key, *(*place[:n], "https://evil", *place[n + 1 :])) for n in range(3)),
        Flows(key, "https://page", f"https://issuer{CLIENT}", ""),
    ):
        assert other.open(sealed, now=0.0) is None
    flipped = [f"{sealed[:n]}{'A' if sealed[n] != 'A' else 'B'}{sealed[n + 1 :]}" for n in range(0, len(sealed) - 4, 7)]
    for forged in (
        *flipped,
        sealed[:-8],
        sealed * 20,
        "",
        "x",
        "=",
        "\ud800",
        "ä" * 90,
        urlsafe_b64encode(b"{}").decode(),
    ):
        assert flows.open(forged, now=0.0) is None, forged
    assert flow_key(openid_secret="", gateway_key="") != flow_key(openid_secret="", gateway_key="")


@pytest.mark.extended
async def test_the_metadata_leads_nowhere_else(client: Client) -> None:
    """Metadata of another issuer, and addresses without TLS, begin no sign-in."""
    for metadata in (
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ):
        async with serve_issuer() as issuer, page_with(client, issuer) as url:
            issuer.metadata = metadata
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60.0) as http:
                assert (await http.get("/page/openid/begin")).status_code == 503, metadata


@pytest.mark.parametrize("issuer", ["http://corp.example", "ftp://x", "https://a b", "http://127.0.0.1.evil.example"])
def test_a_provider_is_reached_over_tls(issuer: str) -> None:
    """An issuer over plain HTTP, except on this machine, is refused, and so is a person who is there twice."""
    person = Identity(name="alice", value="1", scopes=ALL)
    with pytest.raises(ValidationError):
        OpenIDProvider(issuer=issuer, client_id="x", people=(person,))
    with pytest.raises(ValidationError, match="twice"):
        OpenIDProvider(issuer="https://x.example", client_id="x", people=(person, person))
