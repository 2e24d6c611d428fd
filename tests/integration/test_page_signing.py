"""People sign decisions with a key of their browser, under a policy that requires signatures."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect
from pydantic import BaseModel

from holdfast import Agent, Budget, Catalog, Context, Policy, allow, ask, tool
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.page_links import path_of
from holdfast.core.authority.policy import Approver, Terms
from holdfast.core.authority.signatures import fingerprint
from holdfast.core.log.events import (
    BudgetExtended,
    RunPaused,
    RunResumed,
    RunUnblocked,
    TaskRefined,
    UserMessageReceived,
)
from holdfast.testing import call, fail, say, steps
from tests.support.pages import CHROMIUM, chromium, look, open_inbox, page_site, pay
from tests.support.rig import StartRig, events_of, eventually, status_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

PICTURES = os.environ.get("HOLDFAST_PICTURES")
"""A folder for pictures of the pages."""
OTHER = "ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg"
"""A key that no browser has."""
IBAN = "DE89 3704 0044 0532 0130 00"


class Desk(BaseModel):
    """The desk that a run works for."""

    name: str
    rate: float


@tool(effect="unsafe")
def move(amount: float, id: int, desk: Context[Desk]) -> str:
    """Move an amount: a tool without a preview."""
    return f"moved {amount} to {id}"


MOVES = [call("move", amount=amount, id=12345678901234567890) for amount in (1e21, 0.1 + 0.2)]
PAYMENTS = steps(
    [call("pay", cents=cents, iban=IBAN, note="a\u202eb\n\u00fc\U0001f600") for cents in (1, 2, 3, 4)] + [say("Done.")]
)


def signed_policy(key: str, *, four_eyes: bool = False) -> Policy:
    """Return a policy under which Alice's signature decides payments, by default also her own."""
    people, terms = (Approver(name="alice", keys=(key,)),), Terms(requester_may_decide=not four_eyes)
    return Policy(rules=(ask("pay"), allow()), approvers=people, signatures="required", terms=terms)


async def make_key(page: Page, url: str) -> str:
    """Make a key in the browser, and return its public text."""
    await page.goto(url + path_of("key"))
    await page.get_by_role("button", name="Make a key").click()
    await expect(page.locator("#public-key")).to_contain_text("ed25519:")
    key = await page.locator("#public-key").inner_text()
    assert await page.locator("#fingerprint").inner_text() == fingerprint(key)
    await expect(page.locator("#enrol")).to_have_text(f"holdfast approvers add alice {key}")
    return key


def asks(id: str, state: dict[str, Any]) -> bool:
    """Whether a run waits for a decision on this request."""
    return [each["request"] for each in state["pending"]] == [id]


@pytest.mark.extended
async def test_a_browser_signs_every_decision(rig: StartRig, tmp_path: Path) -> None:
    """A person makes a key that nothing can export; once the policy lists it, they approve, change, deny and answer
    calls, and each decision is recorded with their own signature of what the dialog showed.
    """
    async with page_site(rig) as site, chromium() as browser:
        folder = Path(PICTURES) if PICTURES else tmp_path
        page = await open_inbox(browser, site.url)
        key = await make_key(page, site.url)
        await page.screenshot(path=folder / "page-key.png", full_page=True)
        agent = Agent(name="payer", instructions="Pay.", policy=signed_policy(key), tools=[pay, look])
        async with rig(Catalog(agents=[agent]), PAYMENTS) as worker:
            run = await worker.start("Pay", thread="signed/1")
            for number, act in enumerate((approve, edit, deny, answer), 1):
                await eventually(lambda: run.query("state"), partial(asks, str(number)))
                await page.goto(site.url + path_of("requests", run.id, str(number)))
                await act(page)
                dialog = page.get_by_role("dialog")
                await expect(dialog).to_contain_text(f"with the key {fingerprint(key)}")
                await expect(dialog).to_contain_text(r"a\u{202e}b\nü😀")
                await page.set_viewport_size({"width": 390, "height": 844})
                await page.screenshot(path=folder / f"page-sign-{number}.png")
                assert await page.evaluate("document.documentElement.scrollWidth") <= 390
                await dialog.get_by_role("button", name="Sign and send").click()
                await expect(page.get_by_role("status")).to_contain_text("Accepted")
            await status_of(run, "completed")
            decided = [event for event in await events_of(run) if event.type == "decision_received"]
            assert [(each.decision, each.outcome) for each in decided] == [
                ("approve", "accepted"),
                ("approve", "accepted"),
                ("deny", "accepted"),
                ("respond", "accepted"),
            ]
            assert {(each.by, each.proof, each.key) for each in decided} == {("alice", "signed", key)}
            assert [each.say for each in decided] == ["Thanks \u00e9\nbye", "", "", ""]
            assert decided[1].arguments is not None
            assert decided[1].arguments["cents"] == 20
        exported = await page.evaluate(EXPORT)
        assert exported == "InvalidAccessError"


EXPORT = """
async () => {
  const opening = indexedDB.open('holdfast', 1);
  const base = await new Promise(done => { opening.onsuccess = () => done(opening.result); });
  const got = base.transaction('keys').objectStore('keys').get('alice');
  const pair = await new Promise(done => { got.onsuccess = () => done(got.result); });
  return crypto.subtle.exportKey('pkcs8', pair.privateKey).then(() => 'exported', error => error.name);
}
"""


async def approve(page: Page) -> None:
    """Approve, with a message."""
    await page.get_by_label("Message to the agent").fill("  Thanks \u00e9\nbye ")
    await page.get_by_role("button", name="Approve", exact=True).click()


async def edit(page: Page) -> None:
    """Change an argument, and approve."""
    await page.get_by_text("Change the arguments").click()
    field = page.get_by_label("Arguments to run with")
    await field.fill((await field.input_value()).replace('"cents": 2', '"cents": 20'))
    await page.get_by_role("button", name="Review the change").click()
    await page.get_by_role("button", name="Approve with these arguments").click()
    await expect(page.get_by_role("dialog")).to_contain_text('"cents": 20')


async def deny(page: Page) -> None:
    """Deny."""
    await page.get_by_label("Reason").fill("Not this one.")
    await page.get_by_role("button", name="Deny").click()


async def answer(page: Page) -> None:
    """Answer in the place of the call."""
    await page.get_by_label("Answer for the agent").fill("It was paid before.")
    await page.get_by_role("button", name="Answer").click()


@pytest.mark.extended
async def test_the_browser_computes_the_digest_of_any_call(rig: StartRig) -> None:
    """Numbers of any size, a typed context and the lack of a preview give the digest that the run has."""
    async with page_site(rig) as site, chromium() as browser:
        page = await open_inbox(browser, site.url)
        policy = signed_policy(await make_key(page, site.url)).model_copy(update={"rules": ()})
        agent = Agent(name="mover", instructions="Move.", policy=policy, tools=[move], context=Desk)
        async with rig(Catalog(agents=[agent]), steps([*MOVES, say("Done.")])) as worker:
            threads = Threads(worker.client, task_queue=worker.task_queue)
            desk = {"name": "\u20ac \U0001f600", "rate": 1e-7}
            await threads.start("Move", "moved", StartOptions(by="ann", context=desk))
            run = worker.client.get_workflow_handle("moved")
            for number in ("1", "2"):
                await eventually(lambda: run.query("state"), partial(asks, number))
                await page.goto(site.url + path_of("requests", run.id, number))
                await page.get_by_role("button", name="Approve", exact=True).click()
                dialog = page.get_by_role("dialog")
                await expect(dialog).to_contain_text('"id": 12345678901234567890')
                await expect(dialog).to_contain_text('"rate": 1e-7')
                await dialog.get_by_role("button", name="Sign and send").click()
                await expect(page.get_by_role("status")).to_contain_text("Accepted")
            await status_of(run, "completed")


@pytest.mark.extended
async def test_without_a_listed_key_nothing_can_be_signed(rig: StartRig) -> None:
    """A browser without a key, and one whose key the policy does not list, offer no decision and say why."""
    async with page_site(rig) as site, chromium() as browser:
        page = await open_inbox(browser, site.url)
        agent = Agent(name="payer", instructions="Pay.", policy=signed_policy(OTHER), tools=[pay, look])
        async with rig(Catalog(agents=[agent]), PAYMENTS) as worker:
            run = await worker.start("Pay", thread="signed/2")
            await status_of(run, "waiting_approval")
            for words in ("make a key on the page Your key", "does not list the key of this browser"):
                await page.goto(site.url + path_of("requests", run.id, "1"))
                await expect(page.locator("#why-approve")).to_contain_text(words)
                await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
                if "make" in words:
                    await make_key(page, site.url)


@pytest.mark.extended
async def test_a_browser_signs_what_steers_a_run_and_what_it_is_told(rig: StartRig, tmp_path: Path) -> None:
    """Where signatures are required, people pause, resume and retry a run, extend its budget, and send it messages and
    refinements by their own signatures, and the log has them; without a listed key the buttons are disabled and say
    which command does it.
    """
    async with page_site(rig) as site, chromium() as browser:
        page = await open_inbox(browser, site.url, viewport={"width": 390, "height": 844})
        payer = Agent(name="payer", instructions="Pay.", tools=[pay, look], budget=Budget(steps=20))
        agent = payer.model_copy(update={"policy": signed_policy(OTHER, four_eyes=True)})
        async with rig(Catalog(agents=[agent]), PAYMENTS) as worker:
            run = await worker.start("Pay", thread="steered/1")
            await status_of(run, "waiting_approval")
            await page.goto(site.url + path_of("runs", run.id, "change"))
            for act, button in (("refine", "Refine the task"), ("extend", "Extend the budget")):
                await expect(page.get_by_role("button", name=button)).to_be_disabled()
                await expect(page.locator(f"#why-{act}")).to_contain_text(f"holdfast {act} steered/1")
            await page.goto(site.url + path_of("runs", run.id))
            await expect(page.get_by_role("button", name="Send")).to_be_disabled()
            await expect(page.locator("#why-say")).to_contain_text("holdfast say steered/1 MESSAGE --key FILE")
            await expect(page.get_by_role("button", name="Pause")).to_be_disabled()
            await expect(page.locator("#why-pause")).to_contain_text("holdfast pause steered/1 --key FILE")
            key = await make_key(page, site.url)
            await page.goto(site.url + path_of("runs", run.id))
            await expect(page.locator("#why-pause")).to_contain_text("does not list the key of this browser")
            await expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        agent = payer.model_copy(update={"policy": signed_policy(key, four_eyes=True)})
        replies = iter([fail(400, "no such model")])
        async with rig(Catalog(agents=[agent]), lambda conversation: next(replies, say("Done."))) as worker:
            run = await worker.start("Pay", thread="steered/2")
            await status_of(run, "blocked")
            await tell(page, site.url, run.id, key)
            for act in ("Pause", "Resume", "Retry"):
                await page.goto(site.url + path_of("runs", run.id))
                await page.get_by_role("button", name=act).click()
                dialog = page.get_by_role("dialog")
                await expect(dialog).to_contain_text("steered/2")
                await page.screenshot(path=(Path(PICTURES) if PICTURES else tmp_path) / f"page-steer-{act}.png")
                await dialog.get_by_role("button", name="Sign and send").click()
                await expect(page.get_by_role("dialog")).to_have_count(0)
                await expect(page.get_by_role("button", name=act)).to_be_disabled()
            await status_of(run, "completed")
            kinds = (BudgetExtended, UserMessageReceived, TaskRefined, RunPaused, RunResumed, RunUnblocked)
            steered = [event for event in await events_of(run) if isinstance(event, kinds) and event.proof]
            assert [(type(each), each.by, each.key) for each in steered] == [(kind, "alice", key) for kind in kinds]
            assert {each.proof for each in steered} == {"signed"}
            extended, said, refined = steered[:3]
            assert isinstance(extended, BudgetExtended)
            assert isinstance(said, UserMessageReceived)
            assert isinstance(refined, TaskRefined)
            assert (extended.more.steps, extended.reason) == (5, "it is \u202elong")
            assert (said.content, refined.kind, refined.text) == (
                "Pay \u202e<b>less</b>\n\u00fc",
                "correct",
                "Not 4711.",
            )


async def tell(page: Page, url: str, thread: str, key: str) -> None:
    """Extend the budget of a run, send it a message and refine its task, each by a signature of what is shown."""
    run, change = path_of("runs", thread), path_of("runs", thread, "change")
    for at, button, fields, shown in (
        (change, "Extend the budget", {"More steps": "5", "Reason": " it is \u202elong"}, r"it is \u{202e}long"),
        (run, "Send", {"Message to the agent": " Pay \u202e<b>less</b>\n\u00fc "}, r"Pay \u{202e}<b>less</b>"),
        (change, "Refine the task", {"How the task changes": "correct", "The refinement": "Not 4711."}, "Not 4711."),
    ):
        await page.goto(url + at)
        for label, text in fields.items():
            field = page.get_by_label(label)
            await (field.select_option(text) if text == "correct" else field.fill(text))
        await page.get_by_role("button", name=button).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text(f"with the key {fingerprint(key)}")
        await expect(dialog).to_contain_text(shown)
        await dialog.get_by_role("button", name="Sign and send").click()
        await page.wait_for_url(url + run)
