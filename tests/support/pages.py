"""Serve the gateway's page on a loopback port, with a worker behind it, and open it in a browser."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx2
from playwright.async_api import Browser, Page, async_playwright, expect

from holdfast import Agent, Catalog, Policy, Preview, allow, ask, tool
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Approver, Terms
from holdfast.core.memory.semantic import MemoryStore
from holdfast.core.streams.batches import Piece
from holdfast.core.streams.chunks import ChunkKind
from holdfast.doctor.check import Check
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.gateway.http.serving import Server, listen
from holdfast.gateway.page.examining import Checks
from holdfast.gateway.page.sessions import Sessions
from holdfast.streaming.hub import Hub
from holdfast.streaming.transport import Attempt
from holdfast.testing import Script, call, say, steps
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import PATIENCE, Rig, StartRig
from tests.support.serving import sha256
from tests.support.streamed import streamed

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parents[1] / "foreign" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP evil.example 127.0.0.1"]

ALL: tuple[Scope, ...] = tuple(each for each in get_args(Scope) if each != "codec")
CONFINED: tuple[Scope, ...] = tuple(each for each in ALL if each != "doctor")
"""All scopes of a token that is confined to some threads."""


def ledger_change(cents: int, iban: str) -> Preview:
    """Return the change of the ledger."""
    return Preview(f"--- ledger\n+++ ledger\n balance 90000\n-paid 0 to {iban}\n+paid {cents} to {iban}\n")


@tool(effect="unsafe", consequence="pays {cents} cents to {iban}", preview=ledger_change)
def pay(cents: int, iban: str, note: str = "") -> str:
    """Pay a supplier."""
    return f"paid {cents} to {iban}"


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


POLICY = Policy(
    rules=(ask("pay", reason="money leaves the company"), allow()),
    approvers=(Approver(name="alice"), Approver(name="bob")),
    terms=Terms(by=("alice",), expires_after=7_200.0),
)
CALLERS = CallersFile(
    tokens=(
        Token(name="alice", sha256=sha256("of-alice"), scopes=ALL),
        Token(name="bob", sha256=sha256("of-bob"), scopes=ALL),
        Token(name="reader", sha256=sha256("of-reader"), scopes=("read", "list")),
        Token(name="billing", sha256=sha256("of-billing"), scopes=CONFINED, threads=("billing-",)),
    )
)
PAYS = steps(
    [
        call("look", at="invoice 4711"),
        call("pay", cents=125_000, iban="DE89 3704 0044 0532 0130 00", note="Invoice 4711\nof Müller & Söhne"),
        say("Paid."),
    ]
)


HOSTILE = "<script>alert(1)</script>\u202e"
FOUND = [
    Check("settings", "ok", "/srv/holdfast/holdfast.toml (catalog)"),
    Check("policy", "weak", HOSTILE, "sign `decisions`"),
    Check("database", "missing", "db.internal does not answer", "check DATABASE_URL"),
    Check("ports", "open", "nothing to see"),
]
"""What the checks of `doctor` find."""


class Findings:
    """Checks that find the same each time, when they may."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def installation(self) -> list[Check]:
        """Find faults."""
        self.made.append("installation")
        await self.open.wait()
        return FOUND

    async def endpoints(self) -> list[Check]:
        """Find an endpoint; fail the second time."""
        self.made.append("endpoints")
        if self.made.count("endpoints") > 1:
            raise RuntimeError("sk-secret")
        return [Check("llm", "ok", "gpt at https://llm.example, key set")]


@dataclass
class PageSite:
    """A gateway with its page, and the worker behind it."""

    rig: Rig
    url: str
    http: httpx2.AsyncClient
    sessions: Sessions
    threads: Threads
    hub: Hub
    streams: InMemoryStreams
    """Carries the replies that are being written."""

    async def sign_in(self, token: str = "of-alice") -> httpx2.Response:
        """Sign in with a token, as a browser does; the client keeps the cookie."""
        return await self.post("/page/sign-in", {"token": token})

    async def post(
        self, path: str, fields: Mapping[str, str | list[str]], headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a form from this origin, unless the headers say otherwise."""
        own = {"Origin": self.url, "Sec-Fetch-Site": "same-origin", **(headers or {})}
        return await self.http.post(path, data=dict(fields), headers=own)

    async def write(self, run: Any, *texts: str, attempt: int = 1, kind: ChunkKind = "text", first: int = 1) -> None:
        """Write chunks of a run's next reply, as a worker does, or somebody who forges them.

        Args:
            run: The handle of the run.
            *texts: The chunks.
            attempt: The attempt.
            kind: The kind of the chunks.
            first: The number of the first chunk.
        """
        position = int((await run.query("state"))["events"])
        pieces = [Piece(number, kind, text, None, "") for number, text in enumerate(texts, start=first)]
        written = Attempt(run.id, position, position - 1, attempt)
        await self.streams.claim(written)
        await self.streams.append([(written, pieces)])

    async def form_token(self, page: str, action: str) -> str:
        """Return the token of the form with this action on a page."""
        text = (await self.http.get(page)).text
        for form in re.findall(r"<form.*?</form>", text, re.DOTALL):
            if f'action="{action}"' in form and (found := re.search(r'name="form" value="([0-9a-f]+)"', form)):
                return found[1]
        raise AssertionError(f"{page} has no form for {action}")


@asynccontextmanager
async def page_site(
    rig: StartRig,
    policy: Policy = POLICY,
    script: Script = PAYS,
    *,
    catalog: Catalog | None = None,
    key: str | None = None,
    memories: MemoryStore | None = None,
    checks: Checks | None = None,
    **agent: Any,
) -> AsyncIterator[PageSite]:
    """Run a worker and a gateway with its page."""
    own = Agent(name="clerk", instructions="Work.", policy=policy, tools=[pay, look], **agent)
    streams = InMemoryStreams()
    async with streamed(rig, catalog or Catalog(agents=[own]), script, transport=streams) as (worker, hub):
        threads = Threads(worker.client, task_queue=worker.task_queue, answer_within=60.0)
        options: dict[str, Any] = {"key": key, "memories": memories, "checks": checks, "hub": hub}
        async with served_page(threads, policy, **options) as (url, http, sessions):
            yield PageSite(worker, url, http, sessions, threads, hub, streams)


@asynccontextmanager
async def served_page(
    threads: Threads, policy: Policy = POLICY, *, port: int = 0, sessions: Sessions | None = None, **options: Any
) -> AsyncIterator[tuple[str, httpx2.AsyncClient, Sessions]]:
    """Serve a gateway with its page; yield its URL, a client of it, and its sessions."""
    listening = listen("127.0.0.1", port)
    url, sessions = f"http://127.0.0.1:{listening.getsockname()[1]}", sessions or Sessions()
    server = Server(build_app(threads, Callers(CALLERS, policy), page=url, sessions=sessions, **options))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE, trust_env=False) as http:
            yield url, http, sessions
    finally:
        server.stop()
        await serving


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser that resolves `evil.example` to this machine."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


async def windows(browser: Browser, page: Page) -> AsyncIterator[tuple[Page, str, int]]:
    """Yield a new window of the same person on a desk and on a phone, light and dark, with its picture's name and its
    width; axe-core is in it if it is installed.
    """
    state = await page.context.storage_state()
    for scheme in ("light", "dark"):
        for width, height in ((1280, 900), (390, 844)):
            size = {"width": width, "height": height}
            context = await browser.new_context(viewport=size, color_scheme=scheme, storage_state=state)  # type: ignore[arg-type]
            if AXE.is_file():
                await context.add_init_script(path=AXE)
            window = await context.new_page()
            window.set_default_timeout(PATIENCE * 1_000)
            yield window, f"{width}-{scheme}", width
            await context.close()


async def open_inbox(browser: Browser, url: str, **context: object) -> Page:
    """Sign in as Alice in a new browser context, and return the page with the inbox."""
    page = await (await browser.new_context(**context)).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(f"{url}/page/")
    await page.get_by_label("Your token").fill("of-alice")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    return page


FINDINGS = """
async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => `${each.id}: ${each.nodes.map(node => node.html).join(' | ').slice(0, 500)}`)
"""


async def look_at(page: Page, name: str, folder: Path) -> None:
    """Take pictures of an open page at two widths, light and dark.

    It is no wider than its window, and axe-core, if it is installed, has no serious finding.
    """
    if AXE.is_file() and not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width, height in ((1280, 900), (390, 844)):
            await page.set_viewport_size({"width": width, "height": height})
            await page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            if AXE.is_file() and (findings := await page.evaluate(FINDINGS)):
                found[f"{name} {width} {scheme}"] = findings
    assert found == {}, json.dumps(found, indent=1)
