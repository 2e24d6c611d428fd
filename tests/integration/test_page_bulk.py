"""A person decides several requests at once on the page: with the keyboard, on a phone, and signed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog
from holdfast.config.page_links import path_of
from holdfast.testing import Conversation, Reply, call, say
from tests.integration.test_page_signing import make_key, signed_policy
from tests.support.pages import (
    AXE,
    CHROMIUM,
    FINDINGS,
    POLICY,
    PageSite,
    chromium,
    look,
    open_inbox,
    page_site,
    pay,
    windows,
)
from tests.support.rig import Rig, StartRig, events_of, status_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages."""
IBAN = "DE89 3704 0044 0532 0130 00"


def pays(conversation: Conversation) -> Reply:
    """Pay as many cents as the task says; then end."""
    if conversation.replies:
        return say("Done.")
    cents = int(conversation.last_user_message)
    return call("pay", cents=cents, iban=IBAN, note=f"Invoice {cents}\nof M\u00fcller \u202e& S\u00f6hne")


async def waiting(rig: Rig, name: str, count: int) -> list[WorkflowHandle[Any, Any]]:
    """Start runs that each wait for a decision."""
    runs = [await rig.start(str(number), thread=f"{name}/{number}") for number in range(1, count + 1)]
    for run in runs:
        await status_of(run, "waiting_approval")
    return runs


async def decisions(run: WorkflowHandle[Any, Any]) -> list[tuple[str, str, str, str]]:
    """Return the decisions in the log of a run."""
    events = [event for event in await events_of(run) if event.type == "decision_received"]
    return [(each.decision, each.outcome, each.proof, each.say or each.reason) for each in events]


@pytest.mark.extended
async def test_a_person_decides_several_with_the_keyboard(rig: StartRig, tmp_path: Path) -> None:
    """From the inbox, a person selects calls of the same tool and rule, sees each in full, and decides: each decision
    is in the log of its run, one that was decided meanwhile is left out, and no page has a serious finding of axe-core.
    """
    async with page_site(rig, POLICY, pays) as site, chromium() as browser:
        runs = await waiting(site.rig, "several", 5)
        page = await open_inbox(browser, site.url, viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        group = page.get_by_role("link", name="5 calls of pay")
        await group.focus()
        await page.evaluate(
            "() => new Promise(done => addEventListener('htmx:after:swap', () => done(), {once: true}))"
        )
        await expect(group).to_be_focused()  # the inbox has been read again meanwhile
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Review and approve")).to_be_disabled()
        for cents in (1, 2, 3):
            await page.get_by_role("checkbox", name=f"It pays {cents} cents").focus()
            await page.keyboard.press("Space")
        await expect(page.get_by_text("3 selected")).to_be_visible()
        await page.get_by_role("button", name="Review and approve").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Approve these 3 calls of pay?")).to_be_visible()
        for cents in (1, 2, 3):
            article = page.get_by_role("article", name=f"It pays {cents} cents")
            await expect(article).to_contain_text(f"Invoice {cents}\nof M\u00fcller")
            await expect(article).to_contain_text(r"\u202e")
            await expect(article).to_contain_text(f"+paid {cents} to {IBAN}")
        await page.get_by_role("button", name="Back to the selection").click()
        await expect(page.get_by_text("3 selected")).to_be_visible()
        await page.get_by_role("button", name="Review and approve").click()
        await pictures(browser, site, page, Path(PICTURES) if PICTURES else tmp_path)

        request = path_of("requests", "several/2", "1")
        shown = (await runs[1].query("state"))["pending"][0]
        await site.sign_in()
        token = await site.form_token(request, request)
        await site.post(request, {"decision": "deny", "reason": "No.", "digest": shown["digest"], "form": token})
        await page.get_by_label("Message to each agent").fill("Once is enough.")
        await page.get_by_role("button", name="Approve all 3").click()
        await expect(page.get_by_role("status")).to_contain_text("2 of 3 decisions were received")
        await expect(page.get_by_role("region", name="Left undecided")).to_contain_text("Request 1 of several/2")
        await page.reload()
        await expect(page.get_by_role("status")).to_contain_text("0 of 3")

        await page.goto(site.url + path_of("inbox"))
        await page.get_by_role("link", name="2 calls of pay").click()
        await page.get_by_label("Select all").check()
        await page.get_by_role("button", name="Review and deny").click()
        await page.get_by_label("Reason").fill("Not these.")
        await page.get_by_role("button", name="Deny all 2").click()
        await expect(page.get_by_role("status")).to_contain_text("2 of 2")
        assert [error for error in errors if "409" not in error] == []
        said = [await decisions(run) for run in runs]
        approved, denied = [("approve", "accepted", "", "Once is enough.")], [("deny", "accepted", "", "Not these.")]
        assert said == [approved, [("deny", "accepted", "", "No.")], approved, denied, denied]


async def pictures(browser: Browser, site: PageSite, page: Page, folder: Path) -> None:
    """Take pictures at two widths, light and dark, without JavaScript too, and check the pages."""
    state, found = await page.context.storage_state(), dict[str, Any]()
    async for window, name, width in windows(browser, page):
        for shown in ("inbox", "select", "review"):
            if shown == "inbox":
                await window.goto(site.url + path_of("inbox"))
            elif shown == "select":
                await window.get_by_role("link", name="5 calls of pay").click()
                await window.get_by_label("Select all").check()
                await window.get_by_label("It pays 1 cents").uncheck()
            else:
                await window.get_by_role("button", name="Review and deny").click()
                await expect(window.get_by_role("heading", name="Deny these 4 calls")).to_be_visible()
            await window.screenshot(path=folder / f"bulk-{shown}-{name}.png", full_page=True)
            assert await window.evaluate("document.documentElement.scrollWidth") <= width, (shown, width)
            if AXE.is_file() and (findings := await window.evaluate(FINDINGS)):
                found[f"{shown} {name}"] = findings
    assert found == {}, json.dumps(found, indent=1)
    plain = await (await browser.new_context(java_script_enabled=False, storage_state=state)).new_page()
    await plain.goto(site.url + path_of("inbox"))
    await plain.get_by_role("link", name="5 calls of pay").click()
    await plain.get_by_role("checkbox", name="It pays 4 cents").check()
    await plain.get_by_role("button", name="Review and deny").click()
    await expect(plain.get_by_role("button", name="Deny it")).to_be_enabled()
    await plain.context.close()


@pytest.mark.extended
async def test_a_browser_signs_several_decisions(rig: StartRig, tmp_path: Path) -> None:
    """Where signatures are required, one dialog shows all calls, and each decision has a signature of its own."""
    async with page_site(rig) as site, chromium() as browser:
        page = await open_inbox(browser, site.url, viewport={"width": 390, "height": 844})
        key = await make_key(page, site.url)
        agent = Agent(name="payer", instructions="Pay.", policy=signed_policy(key), tools=[pay, look])
        async with rig(Catalog(agents=[agent]), pays) as worker:
            runs = await waiting(worker, "signed-pay", 3)
            await page.goto(site.url + path_of("inbox"))
            await page.get_by_role("link", name="3 calls of pay").click()
            await page.get_by_label("Select all").check()
            await page.get_by_role("button", name="Review and approve").click()
            await expect(page.locator("#why-all")).to_contain_text("Signed with the key of this browser")
            await page.get_by_label("Message to each agent").fill("  Thanks \u00e9\nbye ")
            await page.get_by_role("button", name="Approve all 3").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog.get_by_role("heading", name="Sign: Approve 3 calls")).to_be_visible()
            for cents in (1, 2, 3):
                await expect(dialog).to_contain_text(f'"cents": {cents}')
            await page.screenshot(path=(Path(PICTURES) if PICTURES else tmp_path) / "bulk-sign-390.png")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
            await dialog.get_by_role("button", name="Sign and send").click()
            await expect(page.get_by_role("status")).to_contain_text("3 of 3")
            for run in runs:
                await status_of(run, "completed")
                assert await decisions(run) == [("approve", "accepted", "signed", "Thanks \u00e9\nbye")]
