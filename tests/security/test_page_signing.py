"""Attacks on decisions that a browser signs: forged, replayed and moved signatures; pages that lie to the signer."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Route, expect

from holdfast import Agent, Budget, Catalog, Policy, allow, ask
from holdfast.client.interventions import intervene
from holdfast.client.threads import Threads
from holdfast.config.page_links import path_of
from holdfast.core.authority.interventions import Extension, Message, Pause, Refinement, Resume, Steering
from holdfast.core.authority.policy import Approver, Terms
from holdfast.core.authority.signatures import public_key, sign
from holdfast.core.authority.statements import Decision, Signed
from holdfast.core.log.events import BudgetExtended, TaskRefined, UserMessageReceived
from holdfast.gateway.page.guards import Origin
from holdfast.gateway.page.views.bulk import kind_of
from holdfast.gateway.page.views.requests import Person, call_view
from holdfast.testing import call, say, steps
from tests.support.pages import CHROMIUM, PageSite, chromium, look, open_inbox, page_site, pay
from tests.support.people import KEYS
from tests.support.rig import StartRig, events_of, eventually, status_of

JSON = dict[str, Any]
IBAN = "DE89 3704 0044 0532 0130 00"
SIGNED = Policy(
    rules=(ask("pay"), allow()),
    approvers=(
        Approver(name="alice", keys=(public_key(KEYS["alice"]), public_key(KEYS["dave"]))),
        Approver(name="bob", keys=(public_key(KEYS["bob"]),)),
    ),
    signatures="required",
    terms=Terms(by=("alice",)),
)


def signed(thread: str, request: JSON, *, key: str = "alice", **said: Any) -> JSON:
    """Return a decision as the page's script sends it; by default Alice's approval."""
    statement = {"decision": "approve", "request": request["request"], "digest": request["digest"], **said}
    message = Decision.model_validate({**statement, "by": "alice"}).signed_bytes(thread)
    return {"thread": thread, "statement": statement, "signature": sign(KEYS[key], message)}


async def send(site: PageSite, thread: str, id: str, decision: JSON) -> str:
    """Send a signed decision as the form of a request does, and return the page that answers."""
    page = path_of("requests", thread, id)
    form = {"decision": "approve", "digest": "0" * 64, "signed": json.dumps(decision)}
    return (await site.post(page, {**form, "form": await site.form_token(page, page)})).text


async def test_only_the_persons_own_fresh_signature_counts(rig: StartRig) -> None:
    """Signatures by another approver's key, by an unlisted key, of another thread, request, decision, digest or
    arguments, and one that was used before, count for nothing; nor does one by a key that was revoked meanwhile.
    """
    script = steps([call("pay", cents=cents, iban=IBAN) for cents in (1, 1)] + [say("Done.")])
    async with page_site(rig, SIGNED, script) as site:
        threads = Threads(site.rig.client, task_queue=site.rig.task_queue, answer_within=60.0)
        run = await site.rig.start("Pay", thread="signed-1")
        other = await site.rig.start("Pay", thread="signed-2")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        (elsewhere,) = (await status_of(other, "waiting_approval"))["pending"]
        await site.sign_in()
        good = signed(run.id, request)
        altered: list[tuple[str, JSON]] = [
            ("another approver's key", signed(run.id, request, key="bob")),
            ("an unlisted key", signed(run.id, request, key="mallory")),
            ("another decision", {**good, "statement": {**good["statement"], "decision": "deny"}}),
            ("arguments added", {**good, "statement": {**good["statement"], "arguments": {"cents": 9, "iban": "X"}}}),
            ("a standing permission added", {**good, "statement": {**good["statement"], "remember": True}}),
            ("a message added", {**good, "statement": {**good["statement"], "say": "And 5 more."}}),
            ("signed for another thread", {**signed(other.id, request), "thread": run.id}),
            ("another request's digest", signed(run.id, elsewhere)),
        ]
        for name, decision in altered:
            page = await send(site, run.id, "1", decision)
            assert "Not signed" not in page
            assert "bad_signature" in page or "has changed since" in page, name
        for name, decision in (
            ("for another page", signed(other.id, elsewhere)),
            ("no signature", {**good, "signature": ""}),
            ("a name", {**good, "by": "bob"}),
        ):
            assert 'role="alert"' in await send(site, run.id, "1", decision), name
        assert not [e for e in await events_of(run) if e.type == "decision_received" and e.outcome == "accepted"]

        revoked = {"revoked": public_key(KEYS["dave"]), "by": "bob", "reason": "a lost phone"}
        assert (await intervene(threads, run.id, "revoke_key", revoked, private=KEYS["bob"])).counts
        (shown,) = (await run.query("state"))["pending"]
        assert (
            call_view({**shown, "thread": run.id}, Person("alice", True), datetime.now(UTC)).signable.count("ed25519:")
            == 1
        )
        assert "was revoked" in await send(site, run.id, "1", signed(run.id, request, key="dave"))

        assert "Accepted" in await send(site, run.id, "1", good)
        await eventually(lambda: run.query("state"), lambda state: [r["request"] for r in state["pending"]] == ["2"])
        again = {**good, "statement": {**good["statement"], "request": "2"}}
        for replayed in (good, again):  # the same call, of another effect
            assert "Accepted" not in await send(site, run.id, "2", replayed)
        accepted = [e for e in await events_of(run) if e.type == "decision_received" and e.outcome == "accepted"]
        assert [(each.request, each.by, each.proof) for each in accepted] == [("1", "alice", "signed")]


@pytest.mark.extended
async def test_a_signature_of_a_form_of_several_counts_for_its_request_alone(rig: StartRig) -> None:
    """Of a form that decides several requests, a signature by another key, of another request, or of other words than
    the form's decides nothing, whatever the others do; a signature of a thread that the form does not select, neither.
    """
    script = steps([call("pay", cents=1, iban=IBAN), say("Done.")])
    async with page_site(rig, SIGNED, script) as site:
        runs = [await site.rig.start("Pay", thread=f"signed-several-{number}") for number in (1, 2, 3)]
        shown = [(await status_of(run, "waiting_approval"))["pending"][0] | {"thread": run.id} for run in runs]
        bound = [{name: each[name] for name in ("thread", "request", "digest")} for each in shown]
        good = [signed(each["thread"], each)["signature"] for each in shown]
        await site.sign_in()
        path = path_of("bulk", kind_of(shown[0]))

        async def send_all(signatures: list[str], said: JSON | None = None, *, selected: int = 3) -> str:
            form: JSON = {"said": {"decision": "approve", **(said or {})}}
            pairs = zip(bound, signatures, strict=False)
            form["signatures"] = [{**each, "signature": signature} for each, signature in pairs]
            token = re.findall(r'name="form" value="([0-9a-f]+)"', (await site.http.get(path)).text)[-1]
            fields = {"step": "decide", "decision": "approve", "form": token, "signed": json.dumps(form)}
            items = [json.dumps(each) for each in bound[:selected]]
            return (await site.post(path, {**fields, "item": items})).text

        async def accepted() -> list[str]:
            each = [(run.id, await events_of(run)) for run in runs]
            return [id for id, events in each for e in events if getattr(e, "outcome", "") == "accepted"]

        bobs = [signed(each["thread"], each, key="bob")["signature"] for each in shown]
        for signatures, said in (
            (bobs, {}),
            (good[1:] + good[:1], {}),
            (good, {"decision": "deny"}),
            (good, {"say": "And five more."}),
            (["A" * 86] * 3, {}),
        ):
            assert "bad_signature" in await send_all(signatures, said), said
        assert 'role="alert"' in await send_all(["short"] * 3)
        assert await accepted() == []

        assert "1 of 2" in await send_all([good[0], bobs[1], good[2]], selected=2)
        assert await accepted() == [runs[0].id]


STEERING: dict[str, type[Steering]] = {"pause": Pause, "resume": Resume}


def steering(thread: str, state: JSON, *, act: str = "pause", key: str = "alice", by: str = "alice") -> JSON:
    """Return a statement that steers a run, as the page's script sends it."""
    bound = state["steering"]
    message = STEERING[act].model_validate({**bound, "by": by}).signed_bytes(thread)
    return {"thread": thread, **bound, "signature": sign(KEYS[key], message)}


def token_of(site: PageSite, path: str) -> str:
    """Return the token of the session's form with this action, without its page."""
    session = site.sessions.find(site.http.cookies[Origin(site.url).cookie])
    assert session is not None
    return session.form_token(path)


async def steer(site: PageSite, thread: str, act: str, signed: JSON | None) -> tuple[int, str]:
    """Send the form that steers a run, and return the status and the page that answers."""
    path = path_of("runs", thread, act)
    form = {"form": token_of(site, path), **({"signed": json.dumps(signed)} if signed else {})}
    answer = await site.post(path, form)
    return answer.status_code, answer.text


@pytest.mark.extended
async def test_only_the_persons_own_fresh_signature_steers(rig: StartRig) -> None:
    """Where signatures are required, the page steers a run by the person's own signature of this act, run and state: by
    none without one, by another's, for another run or act, or one that was used before.
    """
    async with page_site(rig, SIGNED) as site:
        run = await site.rig.start("Pay", thread="steered-1")
        other = await site.rig.start("Pay", thread="steered-2")
        state, elsewhere = [await status_of(each, "waiting_approval") for each in (run, other)]
        await site.sign_in()
        good = steering(run.id, state)
        for name, wrong, status in (
            ("unsigned", None, 403),
            ("another approver's key", steering(run.id, state, key="bob"), 403),
            ("another approver", steering(run.id, state, key="bob", by="bob"), 403),
            ("an unlisted key", steering(run.id, state, key="mallory"), 403),
            ("signed for another run", {**steering(other.id, elsewhere), "thread": run.id}, 409),
            ("for another page", steering(other.id, elsewhere), 422),
            ("another act", steering(run.id, state, act="resume"), 403),
            ("another state", {**good, "seen": good["seen"] + 1}, 409),
            ("a name", {**good, "by": "bob"}, 422),
            ("a reason", {**good, "reason": "x"}, 422),
        ):
            assert (await steer(site, run.id, "pause", wrong))[0] == status, name
        assert not [event for event in await events_of(run) if event.type == "run_paused"]

        assert (await steer(site, run.id, "pause", good))[0] == 303
        paused = await run.query("state")
        assert paused["may_steer"]["resume_signed"]
        assert (await steer(site, run.id, "resume", None))[0] == 403
        resume = steering(run.id, paused, act="resume")
        assert (await steer(site, run.id, "resume", resume))[0] == 303
        for act, replayed in (("pause", good), ("resume", resume)):
            assert (await steer(site, run.id, act, replayed))[0] == 409
        (event,) = [event for event in await events_of(run) if event.type == "run_paused"]
        assert (event.by, event.proof, event.key) == ("alice", "signed", public_key(KEYS["alice"]))


def told(
    thread: str, format: type[Signed], /, *, key: str = "alice", by: str = "alice", days: int = 1, **said: Any
) -> JSON:
    """Return a statement that counts once, as the page's script sends it."""
    until = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    once: JSON = {"id": said.pop("id", "once"), "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    message = format.model_validate({**said, **once, "by": by}).signed_bytes(thread)
    return {"thread": thread, "statement": said, **once, "signature": sign(KEYS[key], message)}


async def tell(site: PageSite, thread: str, act: str, signed: JSON | None, **fields: str) -> int:
    """Send a form that tells a run something; return the status."""
    path = path_of("runs", thread, act)
    form = {**fields, "form": token_of(site, path)} | ({"signed": json.dumps(signed)} if signed else {})
    return (await site.post(path, form)).status_code


@pytest.mark.extended
async def test_only_the_persons_own_fresh_signature_tells_a_run_something(rig: StartRig) -> None:
    """Under four eyes, the page sends messages, refinements and extensions by the person's own signature of this text,
    thread, id and expiry: by none without one, by another's, of another text, a second time or when it has expired.
    What the form's fields say beside a signature counts for nothing.
    """
    policy = SIGNED.model_copy(update={"terms": Terms(by=("alice",), requester_may_decide=False)})
    async with page_site(rig, policy, budget=Budget(steps=20)) as site:
        run = await site.rig.start("Pay", thread="told-1")
        await status_of(run, "waiting_approval")
        await site.sign_in()
        kinds: list[tuple[str, type[Signed], JSON, JSON]] = [
            ("extensions", Extension, {"steps": 5}, {"steps": 500}),
            ("messages", Message, {"message": "Pay less."}, {"message": "Pay all."}),
            ("refinements", Refinement, {"kind": "narrow", "text": "Less."}, {"kind": "rescope", "text": "Less."}),
        ]
        for act, kind, said, other in kinds:
            good = told(run.id, kind, **said)
            for name, wrong, status in (
                ("unsigned", None, 403),
                ("another approver's key", told(run.id, kind, key="bob", **said), 403),
                ("another approver", told(run.id, kind, key="bob", by="bob", **said), 403),
                ("another text", {**good, "statement": other}, 403),
                ("another id", {**good, "id": "twice"}, 403),
                ("a later expiry", {**good, "until": "2099-01-01T00:00:00Z"}, 403),
                ("no expiry", {**good, "until": ""}, 422),
                ("expired", told(run.id, kind, days=-1, **said), 409),
                ("valid for ever", told(run.id, kind, days=3_000, **said), 422),
                ("signed for another run", {**told("told-2", kind, **said), "thread": run.id}, 403),
                ("for another page", told("told-2", kind, **said), 422),
                ("a name", {**good, "statement": {**said, "by": "bob"}}, 422),
            ):
                fields = {key: str(value) for key, value in said.items()}
                assert await tell(site, run.id, act, wrong, **fields) == status, (act, name)
            assert await tell(site, run.id, act, good, **{key: str(value) for key, value in other.items()}) == 303, act
            assert await tell(site, run.id, act, good) == 409, act
        found = [
            each
            for each in await events_of(run)
            if isinstance(each, BudgetExtended | UserMessageReceived | TaskRefined) and each.proof
        ]
        alice = ("alice", "signed", public_key(KEYS["alice"]))
        assert [(each.by, each.proof, each.key) for each in found] == [alice] * 3
        extended, received, refined = found
        assert isinstance(extended, BudgetExtended)
        assert isinstance(received, UserMessageReceived)
        assert isinstance(refined, TaskRefined)
        assert (extended.more.steps, received.content, refined.text) == (5, "Pay less.", "Less.")


@pytest.mark.extended
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")
async def test_the_signer_sees_what_is_signed(rig: StartRig) -> None:
    """If the page's data names another call than the digest, nothing is signed; if the text around it is altered, the
    dialog still shows the call that is signed; a changed field after the dialog changes nothing.
    """
    async with page_site(rig, SIGNED) as site, chromium() as browser:
        page = await open_inbox(browser, site.url)
        await page.goto(site.url + path_of("key"))
        await page.get_by_role("button", name="Make a key").click()
        await expect(page.locator("#public-key")).to_contain_text("ed25519:")
        key = await page.locator("#public-key").inner_text()
        policy = SIGNED.model_copy(update={"approvers": (Approver(name="alice", keys=(key,)),)})
        agent = Agent(name="payer", instructions="Pay.", policy=policy, tools=[pay, look])
        script = steps([call("pay", cents=125_000, iban=IBAN), say("Paid.")])
        async with rig(Catalog(agents=[agent]), script) as worker:
            run = await worker.start("Pay", thread="lied")
            await status_of(run, "waiting_approval")
            address = site.url + path_of("requests", run.id, "1")
            lies: list[tuple[str, str]] = [
                (r"\&#34;cents\&#34;:125000", r"\&#34;cents\&#34;:1"),
                ("&#34;pay&#34;", "&#34;look&#34;"),
            ]

            async def lie(route: Route) -> None:
                response = await route.fetch()
                text = await response.text()
                assert lies[0][0] in text
                await route.fulfill(response=response, body=text.replace(*lies[0]))

            await page.route(address, lie)
            while lies:
                await page.goto(address)
                await page.get_by_role("button", name="Approve", exact=True).click()
                await expect(page.get_by_role("alert")).to_contain_text("claims another digest")
                await expect(page.get_by_role("dialog")).to_have_count(0)
                lies.pop(0)
            lies.append((">125000<", ">1<"))
            await page.goto(address)
            await page.unroute(address)
            await expect(page.locator(".blocks")).not_to_contain_text("125000")
            await page.get_by_role("button", name="Approve", exact=True).click()
            await expect(page.get_by_role("dialog")).to_contain_text('"cents": 125000')
            await page.evaluate("document.querySelector('form[data-signs] [name=say]').value = 'Pay twice.'")
            await page.get_by_role("button", name="Sign and send").click()
            await expect(page.get_by_role("status")).to_contain_text("Accepted")
            await status_of(run, "completed")
            (decided,) = [event for event in await events_of(run) if event.type == "decision_received"]
            assert (decided.proof, decided.key, decided.say) == ("signed", key, "")
