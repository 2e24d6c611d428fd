"""The pictures of the page in README and docs: taken from real runs in a real browser, with fixed times and keys.

`make pictures` writes them into `docs/images`.
"""

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.page_links import path_of
from holdfast.core.authority.policy import Approver, Terms
from holdfast.testing import call, say, steps, together
from tests.integration.test_page_signing import make_key
from tests.support.pages import CHROMIUM, chromium, open_inbox, page_site
from tests.support.rig import PATIENCE, Rig, StartRig, status_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
REFRESH = bool(os.environ.get("HOLDFAST_REFRESH_PICTURES"))
"""Whether to write the pictures of the documentation; if not, they are taken and removed with the test's folder."""
MOST_BYTES = 150_000
PICTURES = ("page-inbox", "page-inbox-phone", "page-sign", "page-sign-phone", "page-run", "page-run-phone")
WIDE, PHONE = 1280, (390, 844)

FIXED = """([key, print]) => {
  const put = (node) => {
    node.data = node.data.replaceAll(key, "ed25519:" + "mWcQ7xN0v4aTzL1s".repeat(2) + "Rk9pYbE6uJc")
      .replaceAll(print, "4f1c 9a07 d2e8 63b5")
      .replace(/\\b[0-9a-f]{64}\\b/g, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
      .replace(/\\b(\\d+m )?\\d+s ago\\b/g, "12s ago")
      .replace(/\\b1h \\d+m\\b/g, "1h 58m")
      .replace(/\\b20\\d\\d-\\d\\d-\\d\\d \\d\\d:\\d\\d\\b/g, "2026-03-02 09:30")
      .replace(/\\b\\d\\d:\\d\\d:\\d\\d\\b/g, "09:30:00");
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) put(texts.currentNode);
  document.activeElement?.blur();
}"""
"""Replaces times, digests and the browser's key in the texts of a page: a picture changes if the page does."""


@tool(effect="read")
def read_invoice(number: str) -> str:
    """Read an invoice."""
    return "1,250.00 EUR, due on 2026-03-09, to DE89 3704 0044 0532 0130 00"


@tool(effect="unsafe", consequence="pays {cents} cents to {iban}")
def pay(cents: int, iban: str, note: str = "") -> str:
    """Pay a supplier."""
    return "paid"


@tool(effect="unsafe", consequence="publishes version {version} for everybody")
def publish(version: str, notes: str) -> str:
    """Publish a version."""
    return f"published {version}"


@tool(effect="unsafe", consequence="deletes the branch {branch}")
def delete_branch(branch: str) -> str:
    """Delete a branch."""
    return f"deleted {branch}"


INVOICE = steps(
    [
        call("read_invoice", number="4711"),
        together(
            call("pay", cents=125_000, iban="DE89 3704 0044 0532 0130 00", note="Invoice 4711"),
            text="Invoice 4711 is due on 9 March, and matches the order. I will pay it.",
        ),
        say("Paid."),
    ]
)
RELEASE = steps(
    [
        together(
            call("publish", version="1.2", notes="- Fix the parser for empty files.\n- Add --strict."),
            call("delete_branch", branch="release-1.1"),
            text="The tests of 1.2 pass.",
        ),
        say("Done."),
    ]
)


def agents(key: str) -> tuple[Catalog, Catalog]:
    """Return a clerk, whose payments Alice signs, and a releaser, whose calls she approves."""
    terms = Terms(by=("alice",), expires_after=7_200.0)
    alice = (Approver(name="alice", keys=(key,)),)
    paying = Policy(
        rules=(ask("pay", reason="money leaves the company"), allow()),
        approvers=alice,
        terms=terms,
        signatures="required",
    )
    releasing = Policy(
        rules=(
            ask("publish", reason="a release is public"),
            ask("delete_branch", reason="it cannot be undone"),
            allow(),
        ),
        approvers=(Approver(name="alice"),),
    )
    clerk = Agent(name="clerk", instructions="Work.", policy=paying, tools=[read_invoice, pay])
    releaser = Agent(name="releaser", instructions="Work.", policy=releasing, tools=[publish, delete_branch])
    return Catalog(agents=[clerk]), Catalog(agents=[releaser])


async def start(worker: Rig, task: str, thread: str) -> None:
    """Start a run for Dana, and wait until it asks."""
    threads = Threads(worker.client, task_queue=worker.task_queue)
    await threads.start(task, thread, StartOptions(by="dana"))
    await status_of(worker.client.get_workflow_handle(thread), "waiting_approval")


async def take(page: Page, folder: Path, name: str, key: tuple[str, str], *, height: int) -> None:
    """Take a picture on a desk, of that height, and on a phone: of a page with fixed values that fits its window."""
    for suffix, (width, rows) in (("", (WIDE, height)), ("-phone", PHONE)):
        await page.set_viewport_size({"width": width, "height": rows})
        await page.evaluate(FIXED, list(key))
        await page.screenshot(path=folder / f"{name}{suffix}.png", animations="disabled", caret="hide")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        assert (folder / f"{name}{suffix}.png").stat().st_size < MOST_BYTES, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pictures_of_the_documentation(rig: StartRig, tmp_path: Path, scheme: str) -> None:
    """The inbox, the dialog that signs, and a run fit on a desk and a phone, in light and dark, in small files."""
    folder = IMAGES if REFRESH and scheme == "light" else tmp_path
    if given := os.environ.get("HOLDFAST_PICTURES"):
        folder = Path(given) / scheme
        folder.mkdir(parents=True, exist_ok=True)
    async with page_site(rig) as site, chromium() as browser:
        page = await open_inbox(browser, site.url, color_scheme=scheme)
        public = await make_key(page, site.url)
        key = public, await page.locator("#fingerprint").inner_text()
        clerk, releaser = agents(public)
        async with rig(clerk, INVOICE) as paying, rig(releaser, RELEASE) as releasing:
            await start(paying, "Pay invoice 4711", "invoice-4711")
            await start(releasing, "Publish version 1.2", "release-1.2")
            await page.goto(site.url + path_of("inbox"))
            await expect(page.get_by_role("link", name="It deletes the branch")).to_be_visible(timeout=PATIENCE * 1_000)
            await take(page, folder, "page-inbox", key, height=560)

            await page.goto(site.url + path_of("runs", "invoice-4711"))
            await expect(page.get_by_text("It waits for a decision").first).to_be_visible()
            await take(page, folder, "page-run", key, height=1000)

            await page.goto(site.url + path_of("requests", "invoice-4711", "1"))
            await page.get_by_role("button", name=re.compile("^Approve")).first.click()
            await expect(page.get_by_role("dialog")).to_contain_text("with the key")
            await take(page, folder, "page-sign", key, height=800)
            await page.get_by_role("dialog").get_by_role("button", name="Sign and send").click()
            await expect(page.get_by_role("status")).to_contain_text("Accepted")
            await status_of(paying.client.get_workflow_handle("invoice-4711"), "completed")


def test_the_documentation_has_the_pictures() -> None:
    """Each picture is there, is small, and is shown in a page."""
    pages = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    for name in PICTURES:
        assert (IMAGES / f"{name}.png").stat().st_size < MOST_BYTES, name
        assert f"images/{name}.png)" in pages, name
