"""A person decides, watches and steers runs on the page, in a real browser, with a real worker behind it."""

import os
import re
import threading
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect
from temporalio.client import Client

from holdfast.composition.components import Components
from holdfast.config.page_links import path_of
from holdfast.config.settings import Settings
from holdfast.gateway.http.serving import listen
from holdfast.hosting.development import DevelopmentPage
from holdfast.testing import Reply, call, say, steps
from tests.support.pages import (
    AXE,
    CHROMIUM,
    FINDINGS,
    PageSite,
    chromium,
    open_inbox,
    page_site,
    served_page,
    windows,
)
from tests.support.rig import PATIENCE, StartRig, events_of, status_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages; those that are taken without it are removed with the test's folder."""

PAID = "Paid 1,250 cents to DE89 3704 0044 0532 0130 00."
PAYS_UNTIL_PAID = (
    call("look", at="invoice 4711"),
    call("pay", cents=125_000, iban="DE89 3704 0044 0532 0130 00", note="Invoice 4711\nof Müller & Söhne"),
)


class Gate:
    """Holds a streamed reply until the test lets some of its words through."""

    def __init__(self) -> None:
        self._words = 0
        self._condition = threading.Condition()

    def reply(self, text: str) -> Reply:
        """Return a reply that is held."""
        return replace(say(text), pause=self._pause)

    def open(self, words: int = 10**9) -> None:
        """Let so many words through."""
        with self._condition:
            self._words = words
            self._condition.notify_all()

    def _pause(self, number: int) -> None:
        with self._condition:
            self._condition.wait_for(lambda: number < self._words, PATIENCE)


@pytest.mark.extended
async def test_a_person_approves_edits_and_reads_the_run(rig: StartRig, tmp_path: Path) -> None:
    """From the inbox, a person reads what a call does, changes an argument, sees the difference, approves, and finds
    the result in the run, which is followed live: the reply while it is written, across a restart of the gateway and
    another attempt, until the recorded one replaces it; and so in the same thread when it is continued.
    """
    paid, thanked = Gate(), Gate()
    script = steps([*PAYS_UNTIL_PAID, paid.reply(PAID), thanked.reply("You are welcome.")])
    async with page_site(rig, script=script) as site, chromium() as browser:
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
        await page.get_by_label("Message to the agent").fill("Once is enough.")
        await page.get_by_role("button", name="Approve with these arguments").click()
        await expect(page.get_by_role("status")).to_contain_text("Accepted")
        await reply_is_shown_while_it_is_written(browser, site, run, paid, tmp_path)
        await page.get_by_role("link", name=run.id).click()
        await expect(page.get_by_text("The run has completed").first).to_be_visible()
        (decided,) = [e for e in await events_of(run) if e.type == "decision_received" and e.outcome == "accepted"]
        assert (decided.by, decided.say, decided.via) == ("alice", "Once is enough.", "gateway alice")
        assert decided.arguments is not None
        assert decided.arguments["cents"] == 1_250
        assert (await run.result())["result"] == PAID
        await closed_thread_is_continued(page, thanked)
        assert errors == []


async def reply_is_shown_while_it_is_written(
    browser: Browser, site: PageSite, run: Any, paid: Gate, scratch: Path
) -> None:
    """A page that is opened in the middle shows the words so far. One whose gateway is started again continues, without
    a word twice. Another attempt replaces the words, and the recorded reply replaces all of it.
    """
    same: dict[str, Any] = {"hub": site.hub, "sessions": site.sessions}
    async with served_page(site.threads, **same) as (url, _, _):
        watching = await open_inbox(browser, url)
        await watching.goto(url + path_of("runs", run.id))
        words, draft = watching.locator("#draft .words pre"), watching.locator("#draft")
        await expect(draft).to_be_hidden()
        paid.open(3)
        await expect(words).to_have_text(re.compile("^Paid 1,250"), timeout=PATIENCE * 1_000)
        await expect(draft).to_contain_text("not recorded yet")
        assert await draft.locator("a, button, form, input").count() == 0
        await expect(watching.locator("#heard")).to_have_text("The LLM is writing a reply, which is not recorded yet.")
        await watching.evaluate("window.kept = true")
    await expect(draft.locator(".lost")).to_be_visible()
    paid.open(5)
    async with served_page(site.threads, port=urlsplit(url).port or 0, **same):
        await expect(words).to_have_text(re.compile("^Paid 1,250 cents to"), timeout=PATIENCE * 1_000)
        assert PAID.startswith(await words.inner_text())
        await expect(draft.locator(".lost")).to_be_hidden()
        await site.write(run, "Is it ", "the right account?", attempt=9, kind="reasoning")
        await site.write(run, "I will pay ", "all of it.\u202e", attempt=9, first=3)
        await expect(words).to_have_text("I will pay all of it.\\u202e")
        await expect(draft.get_by_text("Is it the right account?")).to_be_hidden()
        await pictures_of_a_draft(browser, watching, scratch)
        paid.open()
        await expect(watching.get_by_text("The run has completed")).to_be_visible(timeout=PATIENCE * 1_000)
        await expect(draft).to_be_hidden()
        await expect(watching.locator("#head .status")).to_have_text("completed", timeout=PATIENCE * 1_000)
        assert await watching.evaluate("window.kept")
        await expect(watching.get_by_text("I will pay")).to_have_count(0)
        numbers = await watching.locator(".timeline .number").all_inner_texts()
        assert numbers == [str(number) for number in range(len(numbers))]


async def pictures_of_a_draft(browser: Browser, watching: Page, scratch: Path) -> None:
    """Take pictures of a run whose reply is being written, in windows that are opened now, and check them."""
    folder, found = Path(PICTURES) if PICTURES else scratch, list[str]()
    async for window, name, width in windows(browser, watching):
        await window.goto(watching.url)
        await window.get_by_text("Thinking").click()
        await expect(window.get_by_text("Is it the right account?")).to_be_visible()
        await window.screenshot(path=folder / f"page-draft-{name}.png", full_page=True)
        assert await window.evaluate("document.documentElement.scrollWidth") <= width, name
        found += await window.evaluate(FINDINGS) if AXE.is_file() else []
    assert found == []


async def closed_thread_is_continued(page: Page, thanked: Gate) -> None:
    """A message to a thread whose run is over begins the next run, whose reply is shown while it is written, too."""
    await page.get_by_label("Message to the agent").fill("Thanks!")
    await page.get_by_role("button", name="Send").click()
    thanked.open(2)
    await expect(page.locator("#draft .words pre")).to_have_text(re.compile("^You"), timeout=PATIENCE * 1_000)
    thanked.open()
    await expect(page.locator("#draft")).to_be_hidden(timeout=PATIENCE * 1_000)
    await expect(page.locator(".entry.llm", has_text="You are welcome.").last).to_be_visible()


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
