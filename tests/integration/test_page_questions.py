"""People answer on the page what a tool's server asks."""

import html
from pathlib import Path

import pytest

from holdfast.config.page_links import path_of
from holdfast.testing import call, say, steps
from tests.support.pages import page_site
from tests.support.rig import StartRig, eventually, status_of
from tests.workflow.test_server_questions import asking_catalog, book


@pytest.mark.extended
async def test_a_question_is_answered_on_the_page(rig: StartRig, tmp_path: Path) -> None:
    """The inbox lists a server's questions; a page shows its words as its own, a form to fill in, and no way to
    change the call. An answer that does not fit is shown again with the reason; an address is confirmed, not filled in.
    """
    script = steps([call("desk_book", table="T1"), call("desk_pay", amount=3), say("Booked.")])
    async with page_site(rig, script=script, catalog=await asking_catalog(tmp_path)) as site:
        run = await site.rig.start("Book", thread="booked")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        await site.sign_in()
        asked = "What do you answer its server?"
        await eventually(lambda: site.http.get("/page/inbox?all=1"), lambda answer: asked in answer.text)
        page = path_of("requests", run.id, request["request"])
        shown = html.unescape((await site.http.get(page)).text)
        assert "The server's own words, which nobody has checked" in shown
        assert '{\n  "guests": null,\n  "name": null\n}' in shown
        assert "Change the arguments" not in shown
        form = {"decision": "respond", "digest": request["digest"], "form": await site.form_token(page, page)}
        wrong = await site.post(page, {**form, "result": '{"guests": 0}'})
        assert "does not fit the form" in wrong.text
        assert '{"guests": 0}' in html.unescape(wrong.text)
        right = await site.post(page, {**form, "result": '{"guests": 2, "name": "Ann"}'})
        assert "Accepted" in right.text

        (visit,) = (await status_of(run, "waiting_approval"))["pending"]
        page = path_of("requests", run.id, visit["request"])
        shown = html.unescape((await site.http.get(page)).text)
        assert "https://pay.example/1?a=b" in shown
        assert 'href="https://pay.example' not in shown
        assert "I have visited it" in shown
        assert "Allow the same call" not in shown
        form = {"decision": "approve", "digest": visit["digest"], "form": await site.form_token(page, page)}
        assert "Accepted" in (await site.post(page, form)).text
        await status_of(run, "completed")
        assert book(tmp_path)[0] == 'booked T1 {"action": "accept", "content": {"guests": 2, "name": "Ann"}} s:T1'
