"""People refine the task of a run, and extend its budget, on the page."""

import pytest

from holdfast import Budget
from holdfast.config.page_links import path_of
from tests.support.pages import page_site
from tests.support.rig import StartRig, events_of, status_of


@pytest.mark.extended
async def test_a_person_refines_the_task_and_extends_the_budget(rig: StartRig) -> None:
    """Each form has one effect, in the name of the person, however often it is sent; a wrong one says why, and keeps
    what was typed.
    """
    async with page_site(rig, budget=Budget(steps=20)) as site:
        run = await site.rig.start("Pay invoice 4711", thread="changed-1")
        await status_of(run, "waiting_approval")
        await site.sign_in()
        page, to = path_of("runs", run.id, "change"), path_of("runs", run.id)
        assert page in (await site.http.get(to)).text
        refine, extend = f"{to}/refinements", f"{to}/extensions"
        tokens = {path: await site.form_token(page, path) for path in (refine, extend)}

        fields = {"form": tokens[refine], "id": "once", "kind": "narrow", "text": "Only half of it."}
        answer = await site.post(refine, fields)
        assert (answer.status_code, answer.headers["location"]) == (303, to)
        answer = await site.post(refine, fields)
        assert (answer.status_code, "counts once" in answer.text) == (409, True)
        answer = await site.post(extend, {"form": tokens[extend], "id": "more", "steps": "5", "reason": "it is long"})
        assert answer.status_code == 303
        for wrong in ({}, {"steps": "-1"}, {"steps": "many"}, {"steps": "9" * 30}, {"usd": "1e3"}, {"seconds": "0"}):
            answer = await site.post(extend, {"form": tokens[extend], **wrong})
            assert (answer.status_code, all(text in answer.text for text in wrong.values())) == (422, True), wrong
        answer = await site.post(refine, {"form": tokens[refine], "kind": "widen", "text": "<b>everything</b>"})
        assert (answer.status_code, "&lt;b&gt;everything" in answer.text) == (422, True)

        events = await events_of(run)
        (refined,) = [event for event in events if event.type == "task_refined"]
        assert (refined.kind, refined.text, refined.by) == ("narrow", "Only half of it.", "alice")
        (extended,) = [event for event in events if event.type == "budget_extended"]
        assert (extended.more.steps, extended.by, extended.reason) == (5, "alice", "it is long")


async def test_nobody_changes_a_run_without_the_scope_or_the_token_of_the_form(rig: StartRig) -> None:
    """A token that may only read is refused, and so is a form without its token, with that of the other form, or about
    a thread that the person does not reach.
    """
    async with page_site(rig, budget=Budget(steps=20)) as site:
        run = await site.rig.start("Pay", thread="changed-2")
        await status_of(run, "waiting_approval")
        page, to = path_of("runs", run.id, "change"), path_of("runs", run.id)
        more = {"steps": "5", "kind": "narrow", "text": "less"}
        await site.sign_in()
        own = {act: await site.form_token(page, f"{to}/{act}") for act in ("refinements", "extensions")}
        for act, other in (("refinements", "extensions"), ("extensions", "refinements")):
            for form in ("", own[other]):
                assert (await site.post(f"{to}/{act}", {"form": form, **more})).status_code == 403, act
            crossed = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
            assert (await site.post(f"{to}/{act}", {"form": own[act], **more}, crossed)).status_code == 403
        for token, status in (("of-reader", 403), ("of-billing", 404)):
            await site.sign_in(token)
            for act in own:
                assert (await site.post(f"{to}/{act}", {"form": own[act], **more})).status_code in (403, status)
            shown = await site.http.get(page)
            assert f'action="{to}/' not in shown.text
        assert not [each for each in await events_of(run) if each.type in ("task_refined", "budget_extended")]
