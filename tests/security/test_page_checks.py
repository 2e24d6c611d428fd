"""Attacks on what `doctor` finds, on the page: no scope, forged forms, checks that hang, fail or hold markup."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.gateway.authentication import Authenticator
from holdfast.gateway.callers import Caller, Callers
from holdfast.gateway.http.limits import Limits
from holdfast.gateway.http.quotas import EACH_ADDRESS
from holdfast.gateway.page.app import build_page
from holdfast.gateway.page.guards import Origin
from holdfast.gateway.page.sessions import Session, Sessions
from tests.support.pages import ALL, CALLERS, CONFINED, POLICY, Findings

URL = "http://127.0.0.1:8470"
PAGE = "/page/fleet/checks"
NONE: Any = None


@asynccontextmanager
async def opened(
    findings: Findings, scopes: tuple[Any, ...] = ALL
) -> AsyncIterator[tuple[httpx2.AsyncClient, Session]]:
    """Yield a client of the page whose session has the scopes, and that session."""
    sessions, authenticator = Sessions(), Authenticator(Callers(CALLERS, POLICY))
    page = build_page(NONE, authenticator, NONE, url=URL, gateway_key="", sessions=sessions, checks=findings)
    cookie = {Origin(URL).cookie: (id := sessions.begin(Caller("ops", scopes)))}
    session = sessions.find(id)
    assert session
    served = Starlette(routes=[Mount("/page", page)])
    limits = Limits(served, body_bytes=10_000, body_seconds=60, body_bytes_below={}, unauthenticated=EACH_ADDRESS)
    transport = httpx2.ASGITransport(limits)
    async with httpx2.AsyncClient(transport=transport, base_url=URL, cookies=cookie) as http:
        yield http, session


async def press(http: httpx2.AsyncClient, session: Session, **headers: str) -> httpx2.Response:
    """Press the button."""
    own = {"Origin": URL, "Sec-Fetch-Site": "same-origin", **headers}
    return await http.post(PAGE, data={"form": session.form_token(PAGE)}, headers=own)


async def shown(http: httpx2.AsyncClient) -> str:
    """Return the findings, once they are made."""
    for _ in range(1_000):
        if "They are being made" not in (text := (await http.get(PAGE)).text):
            return text
        await asyncio.sleep(0)
    raise AssertionError("the checks do not end")


async def test_only_the_scope_shows_and_makes_checks() -> None:
    """All other scopes together see nothing of it, make no check, and cannot press the button with a valid form."""
    findings = Findings()
    async with opened(findings, CONFINED) as (http, session):
        for answer in (await http.get(PAGE), await press(http, session)):
            assert (answer.status_code, "requires the scope doctor" in answer.text) == (403, True)
            assert "holdfast.toml" not in answer.text
    assert findings.made == []


async def test_a_form_of_elsewhere_makes_no_check() -> None:
    """A form of another site, without a token, or with the token of another form is refused."""
    findings = Findings()
    async with opened(findings) as (http, session):
        assert (await press(http, session, Origin="http://evil.example")).status_code == 403
        assert (await press(http, session, **{"Sec-Fetch-Site": "cross-site"})).status_code == 403
        for token in ("", session.form_token("/page/fleet"), session.form_token("/page/sign-out")):
            sent = await http.post(PAGE, data={"form": token}, headers={"Origin": URL})
            assert sent.status_code == 403
    assert findings.made == []


async def test_a_visit_asks_no_llm_endpoint_and_waits_for_nothing() -> None:
    """A visit begins the checks of the installation, once for all visitors, and does not wait even if they hang; only
    the button asks LLM endpoints, and not again at once.
    """
    findings = Findings()
    findings.open.clear()
    async with opened(findings) as (http, session):
        for _ in range(20):
            assert "They are being made" in (await http.get(PAGE)).text
            await asyncio.sleep(0)
        assert findings.made == ["installation"]
        assert (await press(http, session)).status_code == 303  # one hangs, the others are made
        findings.open.set()
        text = await shown(http)
        assert "1 fault, 1 warning, 1 note, 1 ok" in text
        assert "gpt at https://llm.example" in text
        refused = await press(http, session)
        assert (refused.status_code, "wait a moment" in refused.text) == (429, True)
    assert findings.made == ["installation", "endpoints"]


async def test_findings_are_text_with_the_faults_first() -> None:
    """A finding makes no element, its invisible characters are written out, and each says what to do next."""
    async with opened(Findings()) as (http, _):
        text = await shown(http)
        assert "<script>" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "\u202e" not in text
        assert text.index("db.internal") < text.index("alert(1)") < text.index("nothing to see") < text.index("/srv")
        assert "Next: check DATABASE_URL" in text
        assert "Next: sign <code>decisions</code>" in text


async def test_checks_that_fail_say_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception becomes a line with its type alone, and the next press makes them again."""
    monkeypatch.setattr("holdfast.gateway.page.examining.AGAIN", timedelta(0))
    async with opened(Findings()) as (http, session):
        assert (await press(http, session)).status_code == 303
        await shown(http)
        assert (await press(http, session)).status_code == 303
        text = await shown(http)
        assert "the checks failed: RuntimeError" in text
        assert "sk-secret" not in text
