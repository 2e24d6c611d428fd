"""A person looks at a run from all sides, forks it, checks its record and corrects its memories, in a real browser."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast import Agent, Catalog, Policy, allow
from holdfast.config.page_links import path_of
from holdfast.core.memory.semantic import NewMemory
from holdfast.storage.in_memory.memories import InMemoryMemories
from holdfast.testing import call, say, steps
from tests.support.pages import AXE, CHROMIUM, FINDINGS, POLICY, Findings, PageSite, chromium, look, page_site, windows
from tests.support.rig import PATIENCE, StartRig, events_of, status_of

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages; they are taken in any case, and then removed with the test's folder."""

browsing = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")


async def signed_in(browser: Browser, site: PageSite) -> Page:
    """Sign in as Alice in a new browser context."""
    page = await (await browser.new_context(viewport={"width": 1280, "height": 900})).new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(f"{site.url}/page/")
    await page.get_by_label("Your token").fill("of-alice")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    return page


async def memories_of(thread: str) -> InMemoryMemories:
    """Return a store with memories of a thread, of everybody and of another person."""
    store = InMemoryMemories()
    for number, (scope, text) in enumerate(
        ((f"thread:{thread}", "Invoices arrive on Mondays."), ("global", "The bank is closed on Sundays."))
    ):
        await store.remember(NewMemory(scope=scope, text=text, trust="agent", by="clerk"), key=str(number))
    await store.remember(NewMemory(scope="user:bob", text="Bob is ill.", trust="person"), key="of-bob")
    return store


@pytest.mark.extended
@pytest.mark.browser
@browsing
async def test_a_person_looks_at_a_run_from_all_sides(rig: StartRig) -> None:
    """Calls have bars, replies a plot and the prompt its parts; the slider shows an earlier state, and forks there; the
    badge leads to the check of the record; a memory is corrected and another one forgotten.
    """
    memories = await memories_of("pay-4711")
    async with page_site(rig, memories=memories, checks=Findings()) as site, chromium() as browser:
        run = await site.rig.start("Pay invoice 4711", thread="pay-4711", by="alice")
        await status_of(run, "waiting_approval")
        page = await signed_in(browser, site)
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        at = site.url + path_of("runs", run.id)
        await page.goto(at)
        for name in ("Calls", "Costs", "Prompt", "Tree", "Memory", "Record"):
            await page.get_by_role("link", name=name, exact=True).click()
            await expect(page.get_by_role("heading", name=name, exact=True, level=2)).to_be_visible()
            if name == "Calls":
                await expect(page.get_by_text("waiting for a person", exact=False).last).to_be_visible()
                assert await page.locator(".bars .running").count() >= 3
            if name == "Costs":
                await expect(page.get_by_role("img", name="Tokens over time")).to_be_visible()

        await page.get_by_role("button", name="Check the record").click()
        await expect(page.get_by_role("button", name="Check again")).to_be_visible()
        await expect(page.get_by_role("status")).to_contain_text("roven")  # as far as this gateway has the evidence

        await page.get_by_role("link", name="State at an event").click()
        await page.get_by_label("Event, from 0").fill("3")
        await expect(page.get_by_role("heading", name="After event 3")).to_be_visible()
        await page.get_by_label("First message of the fork").fill("Do not pay.")
        await page.get_by_role("button", name="Fork after event 3").click()
        await page.wait_for_url("**-fork-*")
        fork = site.rig.client.get_workflow_handle(await page.locator("h1 bdi").inner_text())
        (forked,) = [event for event in await events_of(fork) if event.type == "run_forked"]
        assert (forked.by, forked.point.thread, forked.point.position) == (
            "alice",
            run.id,
            4,
        )  # the end of that reply and its calls

        await page.goto(f"{at}/memory")
        await expect(page.get_by_text("Bob is ill.")).to_have_count(0)
        card = page.locator(".card", has_text="Mondays")
        await card.get_by_text("Correct or forget").click()
        await card.get_by_label("Text").fill("Invoices arrive on Tuesdays.")
        await card.get_by_role("button", name="Correct").click()
        await expect(page.locator("pre", has_text="Tuesdays")).to_be_visible()
        card = page.locator(".card", has_text="Sundays")
        await card.get_by_text("Correct or forget").click()
        await card.get_by_role("button", name="Forget").click()
        await expect(page.locator("pre", has_text="Sundays")).to_have_count(0)
        (corrected,) = (await memories.recall("", [f"thread:{run.id}"])).items
        assert (corrected.text, corrected.trust, corrected.by) == ("Invoices arrive on Tuesdays.", "person", "alice")

        await page.get_by_role("link", name="Fleet").click()
        await expect(page.get_by_text("db.internal does not answer")).to_be_visible()
        await expect(page.get_by_text("alert(1)")).to_be_visible()
        await expect(page.get_by_text("Not checked since the gateway started.")).to_be_visible()
        await page.get_by_role("button", name="Check now").click()
        await expect(page.get_by_text("gpt at https://llm.example")).to_have_count(1)
        assert errors == []


@pytest.mark.slow
@pytest.mark.browser
@browsing
async def test_every_page_fits_and_is_accessible(rig: StartRig, tmp_path: Path) -> None:
    """On a desk and a phone, light and dark, no page is wider than its window, and axe-core has no serious finding."""
    async with page_site(rig, memories=await memories_of("pay-4712"), checks=Findings()) as site, chromium() as browser:
        run = await site.rig.start("Pay invoice 4711", thread="pay-4712", by="alice")
        await status_of(run, "waiting_approval")
        page = await signed_in(browser, site)
        await pictures_and_findings(browser, site, page, run.id, Path(PICTURES) if PICTURES else tmp_path)
    if not AXE.is_file():
        pytest.skip("the pages fit; axe-core is not installed: `make test-mcp` installs it")


async def pictures_and_findings(browser: Browser, site: PageSite, page: Page, thread: str, folder: Path) -> None:
    """Take pictures of all pages at two widths, light and dark, and check them."""
    run = path_of("runs", thread)
    paths = {
        "inbox": path_of("inbox"),
        "request": path_of("requests", thread, "1"),
        "run": run,
        "runs": path_of("runs"),
    }
    paths |= {name: f"{run}/{name}" for name in ("calls", "costs", "prompt", "at", "tree", "memory", "verify")}
    paths |= {"fleet": path_of("fleet"), "new": path_of("new-run")}
    found: dict[str, Any] = {}
    async for window, name, width in windows(browser, page):
        for shown, path in paths.items():
            await window.goto(site.url + path)
            await window.screenshot(path=folder / f"page-{shown}-{name}.png", full_page=True)
            assert await window.evaluate("document.documentElement.scrollWidth") <= width, (shown, width)
            if AXE.is_file() and (findings := await window.evaluate(FINDINGS)):
                found[f"{shown} {name}"] = findings
    assert found == {}, json.dumps(found, indent=1)


async def test_a_side_needs_its_scope_and_its_form(rig: StartRig) -> None:
    """Memories, forks and prompts need their scopes; forms without a token of this session and path change nothing; a
    caller who is confined to some threads reaches no shared memory.
    """
    memories = await memories_of("billing-1")
    agent = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[look])
    script = steps([call("look", at="it"), say("Done.")])
    async with page_site(rig, POLICY, script, catalog=Catalog(agents=[agent]), memories=memories) as site:
        run = await site.rig.start("Look", thread="billing-1")
        await status_of(run, "completed")
        path = path_of("runs", run.id)
        await site.sign_in("of-reader")
        statuses = {side: (await site.http.get(f"{path}/{side}")).status_code for side in ("memory", "prompt", "tree")}
        assert statuses == {"memory": 403, "prompt": 403, "tree": 200}
        assert "needs the scope fork and start" in (await site.http.get(f"{path}/at?position=3")).text

        await site.sign_in("of-billing")
        shown = (await site.http.get(f"{path}/memory")).text
        assert ("Mondays" in shown, "Sundays" in shown, "Bob is ill" in shown) == (True, False, False)
        (everybody,) = (await memories.recall("", ["global"])).items
        (bobs,) = (await memories.recall("", ["user:bob"])).items
        token = await site.form_token(f"{path}/memory", f"{path}/memory")
        for item in (everybody, bobs):
            fields = {"id": item.id, "do": "forget", "form": token}
            assert (await site.post(f"{path}/memory", fields)).status_code == 409
        wrong: Mapping[str, Mapping[str, str]] = {
            f"{path}/memory": {"id": everybody.id, "do": "forget"},
            f"{path}/forks": {"at": "2"},
            f"{path}/verify": {"again": "1"},
        }
        for form, sent in wrong.items():
            for named in ({}, {"form": token} if "memory" not in form else {"form": "0" * 64}):
                assert (await site.post(form, {**sent, **named})).status_code == 403, form
        assert len((await memories.recall("", None)).items) == 3
        elsewhere = path_of("runs", "pay-1")
        sides = [f"{elsewhere}/{side}" for side in ("calls", "costs", "prompt", "at", "tree", "memory", "verify")]
        answers = await asyncio.gather(*(site.http.get(side) for side in sides))
        assert {answer.status_code for answer in answers} == {404}

        token = await site.form_token(f"{path}/at?position=2", f"{path}/forks")
        for at in ("0", "999", "x", "-1"):
            assert (await site.post(f"{path}/forks", {"at": at, "form": token})).status_code == 422, at
        assert (await site.http.get("/page/fleet")).status_code == 200


@pytest.mark.extended
async def test_a_long_run_is_shown_in_parts(rig: StartRig) -> None:
    """The calls of a long run are read part by part, its costs as a whole."""
    looks = [call("look", at=f"place {number}") for number in range(60)]
    agent = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[look])
    script = steps([*looks, say("Done.")])
    async with page_site(rig, POLICY, script, catalog=Catalog(agents=[agent])) as site:
        run = await site.rig.start("Look around", thread="look-1")
        await status_of(run, "completed")
        await site.sign_in()
        path = path_of("runs", run.id)
        first = (await site.http.get(f"{path}/calls?before=20")).text
        assert "Call 1: look" in first
        assert "Call 60: look" not in first
        assert "Call 60: look" in (await site.http.get(f"{path}/calls")).text
        assert "61 replies" in (await site.http.get(f"{path}/costs")).text
        async with asyncio.timeout(PATIENCE):  # visibility lags
            while run.id not in (listed := (await site.http.get("/page/runs?agent=clerk")).text):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert "As Temporal lists them" in listed
        asked = (await site.http.get("/page/runs?agent=clerk", headers={"HX-Request": "true"})).text
        assert ("<html" in asked, "As Temporal" in asked, run.id in asked, "completed" in asked) == (
            False,
            False,
            True,
            True,
        )
