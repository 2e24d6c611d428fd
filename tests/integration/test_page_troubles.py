"""People resolve on the page what a run cannot: an unknown outcome, a block, the question of a tool's server."""

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.client.threads import Threads
from holdfast.config.page_links import path_of
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import ScriptedLLM, call, fail, say, steps
from tests.support.outside import Api, Outside
from tests.support.pages import CHROMIUM, chromium, look_at, open_inbox, page_site, served_page
from tests.support.processes import WorkerProcess
from tests.support.rig import PATIENCE, StartRig, events_of, eventually, status_of
from tests.workflow.test_server_questions import asking_catalog, book

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages."""


async def inbox_with(page: Page, url: str, words: str) -> None:
    """Open the inbox, and wait until it has these words."""
    await page.goto(url + path_of("inbox"))
    await expect(page.locator("#inbox")).to_contain_text(words, timeout=PATIENCE * 1_000)


@pytest.mark.extended
async def test_a_person_frees_a_blocked_run(rig: StartRig, tmp_path: Path) -> None:
    """A blocked run is in the inbox with its cause. A person opens it and retries; if the cause is not fixed, it is
    blocked again, and the page says so. Its times stay true while it is open.
    """
    folder = Path(PICTURES) if PICTURES else tmp_path
    replies = iter([fail(400, "no such model"), fail(401, "the key is <b>wrong</b>\u202e")])
    async with page_site(rig, script=lambda _: next(replies, say("Done."))) as site, chromium() as browser:
        run = await site.rig.start("Pay", thread="blocked/1")
        await status_of(run, "blocked")
        page = await open_inbox(browser, site.url)
        await inbox_with(page, site.url, "no such model")
        await look_at(page, "inbox-blocked", folder)
        await page.get_by_role("link", name="blocked/1").click()
        await expect(page.locator("#head")).to_contain_text("no such model")
        await look_at(page, "run-blocked", folder)
        shown = page.locator("time").first  # on a page that stays open, its words follow the clock
        await shown.evaluate("time => { time.dateTime = new Date(Date.now() - (3 * 60 + 20) * 60_000).toISOString() }")
        await expect(shown).to_have_text("3h 20m ago", timeout=PATIENCE * 1_000)
        await page.get_by_role("button", name="Retry").click()
        await status_of(run, "blocked")
        await expect(page.locator("#head")).to_contain_text("the key is <b>wrong</b>", timeout=PATIENCE * 1_000)
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator("#head .status")).to_have_text("completed", timeout=PATIENCE * 1_000)
        retried = [event for event in await events_of(run) if event.type == "run_unblocked"]
        assert [event.by for event in retried] == ["alice", "alice"]


@pytest.mark.extended
async def test_a_person_denies_and_answers_a_server(rig: StartRig, tmp_path: Path) -> None:
    """A person fills in what a tool's server asks; an answer that does not fit is shown again with the reason. They
    decline the next question, and the call ends without an answer.
    """
    folder = Path(PICTURES) if PICTURES else tmp_path
    script = steps([call("desk_book", table="T1"), call("desk_book", table="T2"), say("Booked.")])
    catalog = await asking_catalog(tmp_path)
    async with page_site(rig, script=script, catalog=catalog) as site, chromium() as browser:
        run = await site.rig.start("Book", thread="asked/1")
        await status_of(run, "waiting_approval")
        page = await open_inbox(browser, site.url)
        await inbox_with(page, site.url, "What do you answer its server?")
        await page.locator("#inbox h2 a").first.click()
        await look_at(page, "question", folder)
        answer = page.get_by_label("Answer for the server")
        for guests in ("0", "2"):
            await answer.fill(f'{{"guests": {guests}, "name": "Ann"}}')
            await page.get_by_role("button", name="Answer").click()
            if guests == "0":
                await expect(page.get_by_role("alert")).to_contain_text("does not fit the form")
                await expect(answer).to_have_value('{"guests": 0, "name": "Ann"}')
        await expect(page.get_by_role("status")).to_contain_text("Accepted")
        await eventually(lambda: run.query("state"), lambda state: [r["request"] for r in state["pending"]] == ["2"])
        await inbox_with(page, site.url, "What do you answer its server?")
        await page.locator("#inbox h2 a").first.click()
        await page.get_by_label("Reason").fill("Not today.")
        await page.get_by_role("button", name="Decline").click()
        await expect(page.get_by_role("status")).to_contain_text("Accepted")
        await status_of(run, "completed")
        assert book(tmp_path)[0].startswith("booked T1")


@pytest.mark.slow
async def test_a_person_resolves_an_unknown_outcome(tmp_path: Path) -> None:
    """The worker dies after its call was sent. The inbox asks whether it happened and says what is known; a person says
    that it did, and the run continues without a second effect.
    """
    folder = Path(PICTURES) if PICTURES else tmp_path
    with Api(late=1.0) as api, ScriptedLLM(steps([call("mail", order="7"), say("done")])) as llm:
        outside = Outside(api, tmp_path / "outbox")
        worker = WorkerProcess(
            tmp_path / "home",
            HOLDFAST_CATALOG="tests.support.outside:catalog",
            OPENAI_BASE_URL=llm.base_url,
            OUTSIDE_API=api.url,
            OUTSIDE_FILE=str(outside.file),
        )
        await asyncio.to_thread(worker.start)
        try:
            client = await connect_stack(worker.stack)
            begin, thread = issued(RunInput(task="Write to order 7", agent="shop")), f"lost-{uuid4().hex[:8]}"
            run = await client.start_workflow(WORKFLOW, begin, id=thread, task_queue=worker.task_queue)
            await eventually(lambda: asyncio.sleep(0, api.under_way), bool)
            worker.kill()
            threads = Threads(client, task_queue=worker.task_queue, answer_within=60.0)
            async with served_page(threads) as (url, _, _), chromium() as browser:
                page = await open_inbox(browser, url)
                await asyncio.to_thread(worker.start)
                await status_of(run, "waiting_approval")
                await inbox_with(page, url, "Did this happen?")
                await look_at(page, "inbox-unknown", folder)
                await page.locator("#inbox h2 a").first.click()
                await expect(page.get_by_text("may still arrive until")).to_be_visible()
                await expect(page.get_by_label("Result of the call")).to_be_empty()
                await look_at(page, "request-unknown", folder)
                await asyncio.to_thread(api.drain)
                await page.get_by_label("Result of the call").fill("It is in the outbox.")
                await page.get_by_role("button", name="It happened").click()
                await expect(page.get_by_role("status")).to_be_visible()
                await look_at(page, "decided-unknown", folder)
                await page.get_by_role("link", name=thread).click()
                await expect(page.locator("#head .status")).to_have_text("completed", timeout=PATIENCE * 1_000)
                await look_at(page, "run-unknown", folder)
            assert list(outside.effects().values()) == [1]
        finally:
            await asyncio.to_thread(worker.stop)
