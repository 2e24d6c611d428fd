"""A person decides, watches and steers runs on the page, in a real browser, with a real worker behind it."""

import os
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect
from temporalio.client import Client

from holdfast.composition.components import Components
from holdfast.config.page_links import path_of
from holdfast.config.settings import Settings
from holdfast.gateway.http.serving import listen
from holdfast.hosting.development import DevelopmentPage
from tests.support.pages import CHROMIUM, PageSite, chromium, open_inbox, page_site, windows
from tests.support.rig import PATIENCE, StartRig, events_of, status_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages; they are taken in any case, and then removed with the test's folder."""


async def test_a_person_approves_edits_and_reads_the_run(rig: StartRig, tmp_path: Path) -> None:
    """From the inbox, a person reads what a call does, changes an argument, sees the difference, approves, and finds
    the result in the run, which is followed live.
    """
    async with page_site(rig) as site, chromium() as browser:
        run = await site.rig.start("Pay invoice 4711", thread="pay/4711")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        size = {"width": 1280, "height": 900}
        page = await open_inbox(browser, site.url, viewport=size)
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.get_by_role("link", name="It pays 125000 cents").click()
        await expect(page.get_by_text("Invoice 4711\nof Müller & Söhne")).to_be_visible()
        await pictures(browser, site, page, tmp_path, request["request"])
        await page.get_by_text("Change the arguments").click()
        changed = (await page.get_by_label("Arguments to run with").input_value()).replace("125000", "1250")
        await page.get_by_label("Arguments to run with").fill(changed)
        await page.get_by_role("button", name="Review the change").click()
        await expect(page.locator(".diff .add")).to_have_text('+   "cents": 1250,')
        watching = await page.context.new_page()
        await watching.goto(site.url + path_of("runs", run.id))
        await page.get_by_label("Message to the agent").fill("Once is enough.")
        await page.get_by_role("button", name="Approve with these arguments").click()
        await expect(page.get_by_role("status")).to_contain_text("Accepted")
        await expect(watching.get_by_text("The run has completed")).to_be_visible(timeout=PATIENCE * 1_000)
        await expect(watching.locator("#head .status")).to_have_text("completed", timeout=PATIENCE * 1_000)
        await page.get_by_role("link", name=run.id).click()
        await expect(page.get_by_text("The run has completed").first).to_be_visible()
        assert errors == []

        (decided,) = [e for e in await events_of(run) if e.type == "decision_received" and e.outcome == "accepted"]
        assert (decided.by, decided.say, decided.via) == ("alice", "Once is enough.", "gateway alice")
        assert decided.arguments is not None
        assert decided.arguments["cents"] == 1_250
        assert (await run.result())["result"] == "Paid."


async def pictures(browser: Browser, site: PageSite, page: Page, scratch: Path, request: str) -> None:
    """Take pictures of the pages at two widths, light and dark; no page is wider than its window."""
    folder = Path(PICTURES) if PICTURES else scratch
    paths = {
        "inbox": path_of("inbox"),
        "request": path_of("requests", "pay/4711", request),
        "run": path_of("runs", "pay/4711"),
        "runs": path_of("runs"),
        "new": path_of("new-run"),
    }
    async for window, name, width in windows(browser, page):
        for shown, path in paths.items():
            await window.goto(site.url + path)
            await window.screenshot(path=folder / f"page-{shown}-{name}.png", full_page=True)
            assert await window.evaluate("document.documentElement.scrollWidth") <= width, (shown, width)


async def test_a_development_worker_prints_a_link_that_signs_in_once(client: Client, tmp_path: Path) -> None:
    """The link is good for one browser, in the name of the person who started the worker, and then another one is
    printed; opening it does not use it up. A port that is taken is left to its owner, and then the page's address is
    not for links, because another program may have it later.
    """
    lines: list[str] = []
    with closing(listen("127.0.0.1", 0)) as taken:
        settings = Settings(home=tmp_path, by="ann", gateway_port=taken.getsockname()[1])
        async with AsyncExitStack() as cleanup:
            parts = Components(settings, {}, cleanup=cleanup, connected=client)
            page = DevelopmentPage()
            assert cleanup.enter_context(page.reserve(settings)) is None
            async with page.serve(parts, lines.append):
                address = lines[0].split()[1]
                url, secret = address.split("/page/")[0], address.split("link=")[1]
                assert url != f"http://127.0.0.1:{settings.gateway_port}"
                own = {"Origin": url}
                async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
                    opened = [await http.get(address) for _ in range(2)]
                    assert all("This link signs you in once" in each.text for each in opened)
                    first = await http.post("/page/sign-in", data={"link": secret}, headers=own)
                    again = await http.post("/page/sign-in", data={"link": secret}, headers=own)
                    assert (first.status_code, again.status_code, len(lines)) == (303, 401, 2)
                    assert "Signed in as <bdi>ann</bdi>" in (await http.get("/page/new-run")).text
                    assert (await http.get("/threads")).status_code == 401
