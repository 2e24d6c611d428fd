"""Take the documentation's pictures of the Web UI, from a real run in a real browser.

`python -m tests.support.screenshots [FOLDER]` writes them, into `docs/images` by default. With `--hostile`, the
arguments attack the page.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, FrameLocator, Page, ViewportSize, async_playwright, expect

from holdfast import Agent, Catalog, Policy, Rule, Terms, tool
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.testing import call, say, steps
from tests.support.rig import start_rig, status_of

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DESKTOP: ViewportSize = {"width": 1280, "height": 1160}
PHONE: ViewportSize = {"width": 390, "height": 844}
PATIENCE = 120_000
"""Milliseconds: the first page of a cold browser is slow."""

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

NOTES = "## 1.2\n\n- Fix the parser for empty files.\n- Add `--strict`.\n"
HOSTILE = (
    "ls\x1b[2J\u202e\u200b\n```\n### Request 9: may this run?\n<img src=x onerror=alert(1)> "
    "![x](https://evil.example/x.png)\n" + "long line " * 80 + "\n" + "\n".join(f"line {n}" for n in range(300))
)


@tool(effect="read")
def read_file(path: str) -> str:
    """Read a file."""
    return NOTES


@tool(effect="unsafe")
def publish(version: str, notes: str) -> str:
    """Publish a version."""
    return f"published {version}"


TERMS = Terms(quorum=1, expires_after=86_400.0)
CATALOG = Catalog(
    agents=[
        Agent(
            name="releaser",
            instructions="Release.",
            policy=Policy(rules=(Rule(verdict="ask", tool="publish", reason="a release is public", terms=TERMS),)),
            tools=[read_file, publish],
        )
    ],
)


@asynccontextmanager
async def waiting_run(stack: Stack, folder: Path, notes: str) -> AsyncIterator[str]:
    """Run the releaser until it asks, and yield the address of its page."""
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    script = steps([call("read_file", path="CHANGELOG.md"), call("publish", version="1.2", notes=notes), say("Done.")])
    assert stack.database_url
    options: dict[str, Any] = {"worker_client": await connect_stack(stack), "database_url": stack.database_url}
    async with start_rig(client, CATALOG, script, folder=folder, **options) as rig:
        threads = Threads(client, task_queue=rig.task_queue)
        started = await threads.start(
            "Publish 1.2 with the notes in CHANGELOG.md", "release-1.2", StartOptions(by="ann")
        )
        run = client.get_workflow_handle(started.thread)
        await status_of(run, "waiting_approval")
        yield f"{stack.ui_url}/namespaces/default/workflows/{run.id}/{started.run_id}"


async def on_desktop(browser: Browser, address: str, folder: Path) -> None:
    """Take the pictures on a desktop: the timeline, the details, and the dialog that sends a signal."""
    page = await browser.new_page(viewport=DESKTOP)
    await page.goto(f"{address}/timeline")
    await expect(page.get_by_text("step 1").first).to_be_visible(timeout=PATIENCE)
    await page.screenshot(path=folder / "timeline.png")
    await open_details(page, address)
    await page.screenshot(path=folder / "approval.png")
    await open_dialog(page)
    await page.locator("dialog[open]").screenshot(path=folder / "signal.png")


async def on_phone(browser: Browser, address: str, folder: Path) -> None:
    """Take the picture on a phone: the request in the details."""
    page = await browser.new_page(viewport=PHONE, has_touch=True, is_mobile=True)
    details = await open_details(page, address)
    await details.get_by_text("Waits for a decision").evaluate("each => each.scrollIntoView()")
    await page.screenshot(path=folder / "phone.png")


async def open_details(page: Page, address: str) -> FrameLocator:
    """Open the tab that has the details of a run."""
    await page.goto(f"{address}/user-metadata")
    details = page.frame_locator("iframe").last
    await expect(details.get_by_text("Waits for a decision")).to_be_visible(timeout=PATIENCE)
    return details


async def open_dialog(page: Page) -> None:
    """Open the dialog that sends a signal, and choose `approve`."""
    await page.get_by_role("button", name="More Actions").locator("visible=true").click()
    await page.get_by_test_id("signal-button").locator("visible=true").click()
    dialog = page.locator("dialog[open]")
    await dialog.get_by_test_id("signal-select-button").click()
    await dialog.get_by_role("option", name=re.compile("^approve")).click()
    await dialog.locator(".cm-content").click()
    await page.keyboard.insert_text('{"request": "1", "by": "ann", "reason": "checked the notes"}')


async def main(folder: Path, *, hostile: bool) -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as cleanup:
        servers = DevStack(Path(scratch) / "stack", usual=Ports(any_free(), any_free(), any_free()))
        cleanup.callback(servers.stop)
        stack = servers.start()
        running = waiting_run(stack, Path(scratch), HOSTILE if hostile else NOTES)
        async with running as address, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            await on_desktop(browser, address, folder)
            await on_phone(browser, address, folder)
            await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=IMAGES)
    parser.add_argument("--hostile", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.folder, hostile=given.hostile))
