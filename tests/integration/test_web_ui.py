"""A person reads and approves a request in Temporal's Web UI, in a real browser."""

import os
import re
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from holdfast import Agent, Catalog, ToolContext, tool
from holdfast.config.stack_file import Stack
from holdfast.core.loop.state import LoopLimits
from holdfast.core.run.inputs.interventions import SIGNALS
from holdfast.testing import call, say, steps
from tests.support import looped
from tests.support.rig import StartRig, status_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

PATIENCE = 120_000
"""Milliseconds: the first page load of a cold browser on a busy machine is slow."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]


@tool(effect="unsafe")
def pay(amount: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{amount}\n")
    return f"paid {amount}"


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Open a page of a headless browser that connects only to this machine."""
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync", "--disable-quic"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        page = await browser.new_page(viewport={"width": 1400, "height": 1000})
        yield page
        await browser.close()


@pytest.mark.slow
async def test_a_person_reads_the_request_and_approves_it_in_the_web_ui(
    rig: StartRig, stack: Stack, page: Page
) -> None:
    """The details show task, request, a link to the page and the JSON to send; sending that from the signal dialog
    finishes the run.
    """
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[pay])])
    async with rig(catalog, steps([call("pay", amount=7), say("done")]), page="https://gateway.example") as r:
        run = await r.start("settle the invoice")
        await status_of(run, "waiting_approval")
        address = f"{stack.ui_url}/namespaces/default/workflows/{run.id}/{run.first_execution_run_id}"

        await page.goto(f"{address}/user-metadata")
        details = page.frame_locator("iframe").last  # the UI renders Markdown in a sandbox
        await expect(details.get_by_text("Request 1: may this run?")).to_be_visible(timeout=PATIENCE)
        await expect(details.get_by_text("settle the invoice")).to_be_visible()
        link = details.get_by_role("link", name="Decide on the page")
        assert await link.get_attribute("href") == f"https://gateway.example/page/requests/{run.id}/1"
        payload = await details.get_by_text('"request": "1"').first.inner_text()

        await page.goto(f"{address}/timeline")
        await expect(page.get_by_text("step 1").first).to_be_visible(timeout=PATIENCE)
        waits = "waits for a decision on request 1: pay (request 1)"
        await expect(page.get_by_text(waits).first).to_be_visible(timeout=PATIENCE)
        if folder := os.environ.get("HOLDFAST_SCREENSHOTS"):
            await page.screenshot(path=f"{folder}/timeline.png")
        assert await signal_menu(page) == sorted({*SIGNALS} - {"subagent_ended"})
        if folder:
            await page.screenshot(path=f"{folder}/menu.png")
        await page.keyboard.press("Escape")

        await page.goto(f"{stack.ui_url}/namespaces/default/workflows?query=HoldfastStatus%3D%22waiting_approval%22")
        await expect(page.get_by_text(run.id).first).to_be_visible(timeout=PATIENCE)
        if folder:
            await page.screenshot(path=f"{folder}/list.png")
        await page.goto(f"{address}/timeline")
        await send_signal(page, "approve", payload)

        assert (await run.result())["result"] == "done"
        assert (r.workspace / "paid").read_text() == "7\n"


@tool(effect="unsafe")
def order(what: str) -> str:
    """Order something."""
    return f"ordered {len(what)} characters"


ATTACK = "\x1b[2J\u202e\u200b\n```\n### Request 9\n<img src=x onerror=alert(1)> ![x](https://evil.example/x.png)\n"


@pytest.mark.slow
async def test_a_person_approves_on_a_phone_after_reading_the_whole_request(
    rig: StartRig, stack: Stack, page: Page
) -> None:
    """At 390 pixels no row of hostile arguments is clipped, none renders as markup, and the JSON is accepted."""
    await page.set_viewport_size({"width": 390, "height": 844})
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[order])])
    what = ATTACK + "word " * 200 + "\n" + "\n".join(f"line {number}" for number in range(200)) + "THE END"
    async with rig(catalog, steps([call("order", what=what), say("done")])) as r:
        run = await r.start(f"order {ATTACK}")
        await status_of(run, "waiting_approval")
        address = f"{stack.ui_url}/namespaces/default/workflows/{run.id}/{run.first_execution_run_id}"

        await page.goto(f"{address}/user-metadata")
        details = page.frame_locator("iframe").last
        await expect(details.get_by_text("Waits for a decision on request 1")).to_be_visible(timeout=PATIENCE)
        assert await details.locator("img").count() == 0
        assert await details.locator("h3").all_inner_texts() == ["Request 1: may this run?", "Task"]
        arguments = details.locator("pre", has_text="THE END")
        wide, room = await arguments.evaluate("each => [each.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= room
        payload = await details.get_by_text('"request": "1"').first.inner_text()

        await send_signal(page, "approve", payload)
        assert (await run.result())["result"] == "done"


async def signal_menu(page: Page) -> list[str]:
    """Return the names in the menu of signals; each has a description."""
    await page.get_by_role("button", name="More Actions").locator("visible=true").click()
    await page.get_by_test_id("signal-button").locator("visible=true").click()
    dialog = page.locator("dialog[open]")
    await dialog.get_by_test_id("signal-select-button").click()
    await expect(dialog.get_by_role("option", name=re.compile("^approve"))).to_be_visible(timeout=PATIENCE)
    entries = [entry.strip().split("\n") for entry in await dialog.get_by_role("option").all_inner_texts()]
    return sorted(entry[0].strip() for entry in entries if entry[0].strip() != "Custom")


async def send_signal(page: Page, name: str, payload: str) -> None:
    """Send a signal from a run's page, as a person does."""
    await page.get_by_role("button", name="More Actions").locator("visible=true").click()
    await page.get_by_test_id("signal-button").locator("visible=true").click()
    dialog = page.locator("dialog[open]")
    await dialog.get_by_test_id("signal-select-button").click()
    await dialog.get_by_role("option", name=re.compile(rf"^{name}\b")).click()
    await dialog.locator(".cm-content").click()
    await page.keyboard.insert_text(payload)
    await dialog.get_by_test_id("confirm-modal-button").click()


@pytest.mark.slow
async def test_a_person_sees_the_iterations_of_a_loop_and_resumes_it_in_the_web_ui(
    rig: StartRig, stack: Stack, page: Page
) -> None:
    """Iterations are child workflows with summaries; the details show the loop's state and how to resume it."""
    async with rig(looped.catalog, looped.script) as r:
        looped.prepare(workspace := r.workspace / "loop", 3)
        limits = LoopLimits(iterations=2)
        loop = await r.start_loop(workspace=str(workspace), task="count to three", limits=limits)
        await status_of(loop, "blocked")
        address = f"{stack.ui_url}/namespaces/default/workflows/{loop.id}/{loop.first_execution_run_id}"

        await page.goto(f"{address}/user-metadata")
        details = page.frame_locator("iframe").last
        await expect(details.get_by_text("Blocked: IterationLimit")).to_be_visible(timeout=PATIENCE)
        payload = await details.get_by_text('{"by": "your name"}').first.inner_text()

        await page.goto(f"{address}/timeline")
        await expect(page.get_by_text("iteration 0: task 000").first).to_be_visible(timeout=PATIENCE)
        await send_signal(page, "retry", payload)

        assert (await loop.result()).tasks == 3
        await expect(page.get_by_text("iteration 2: task 002").first).to_be_visible(timeout=PATIENCE)
