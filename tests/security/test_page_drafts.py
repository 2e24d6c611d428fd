"""Who sees a reply on the page before it is recorded, and the worst that somebody who forges one can do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import pytest

from holdfast import Agent, Catalog
from holdfast.config.page_links import path_of
from holdfast.testing import Conversation, Reply, call, say
from tests.security.test_streams import frames
from tests.support.pages import POLICY, PageSite, look, page_site, pay
from tests.support.rig import PATIENCE, StartRig, eventually, status_of

Frame = tuple[str, str, dict[str, Any]]
SECRET = "Nobody has recorded these words."
STREAMS = {"Accept": "text/event-stream"}


@asynccontextmanager
async def following(site: PageSite, thread: str, after: str) -> AsyncIterator[AsyncIterator[Frame]]:
    """Follow a page's stream after an id, for a block."""
    path = path_of("runs", thread, "stream")
    async with asyncio.timeout(PATIENCE):
        async with site.http.stream("GET", path, params={"after": after}, headers=STREAMS) as answer:
            assert answer.status_code == 200
            async with aclosing(frames(answer)) as items:  # type: ignore[type-var]
                yield items


def words(frame: Frame) -> str:
    """Return the words of a frame."""
    return "".join(text for text, _ in frame[2].get("pieces", ()))


async def last_of(run: Any) -> int:
    """Return the position of the last event."""
    return int((await run.query("state"))["events"]) - 1


async def test_only_a_reader_of_the_transcript_sees_a_reply_before_it_is_recorded(rig: StartRig) -> None:
    """Without a session, the scope or the thread there is no word, whichever id is sent, and no script of the page that
    asks; a session that ends, ends its streams; and no page to decide on has words that are not recorded.
    """
    async with page_site(rig) as site:
        run = await site.rig.start("Pay invoice 4711", thread="drafted-1")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        await site.write(run, SECRET)
        path, last = path_of("runs", run.id, "stream"), await last_of(run)
        outside = await site.http.get(path, params={"after": str(last)}, headers=STREAMS)
        assert (outside.status_code, outside.text) == (401, "")
        for token, status in (("of-reader", 403), ("of-billing", 404)):
            await site.sign_in(token)
            for after in ("-1", str(last), f"{last + 1}.1.1", "999999999"):
                refused = await site.http.get(path, params={"after": after}, headers=STREAMS)
                assert (refused.status_code, SECRET in refused.text) == (status, False), (token, after)
        shown = await site.http.get(path_of("runs", run.id))
        assert "live.js" not in shown.text
        await site.sign_in("of-reader")
        assert "live.js" not in (await site.http.get(path_of("runs", run.id))).text

        await site.sign_in()
        for wrong in ("", "x", "2.1", "9" * 40):
            assert (await site.http.get(path, params={"after": wrong}, headers=STREAMS)).status_code == 422
        crossed = {**STREAMS, "Sec-Fetch-Site": "cross-site"}
        assert (await site.http.get(path, params={"after": "0"}, headers=crossed)).status_code == 403
        assert 'data-stream="/page/runs/drafted-1/stream"' in (await site.http.get(path_of("runs", run.id))).text
        for page in ("/page/inbox", path_of("requests", run.id, request["request"]), path_of("runs", run.id)):
            assert SECRET not in (await site.http.get(page)).text
        async with following(site, run.id, str(last)) as items:
            first = await anext(items)
            assert (first[0], first[1], words(first)) == (f"{last + 1}.1.1", "draft", SECRET)
            token = await site.form_token("/page/inbox", "/page/sign-out")
            await site.post("/page/sign-out", {"form": token})
            await site.write(run, "More words.", first=2)
            assert [item async for item in items] == []


@pytest.mark.extended
async def test_a_stream_continues_after_its_last_id_and_another_attempt_replaces_the_words(rig: StartRig) -> None:
    """After a cut, a page gets what follows its last id, once. Another attempt at the reply says first that the words
    so far are gone, and words of an earlier attempt never return. The recorded event ends them.
    """
    async with page_site(rig) as site:
        run = await site.rig.start("Pay invoice 4711", thread="drafted-2")
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        await site.write(run, "I will ", "pay.")
        await site.sign_in()
        last = await last_of(run)
        async with following(site, run.id, str(last)) as items:
            assert words(await anext(items)) == "I will "
        async with following(site, run.id, f"{last + 1}.1.1") as items:
            again = await anext(items)
            assert words(again) == "pay."
        async with following(site, run.id, again[0]) as items:
            await site.write(run, "I will not.", attempt=2)
            await site.write(run, "Never.", first=3)
            assert [(await anext(items))[1], words(await anext(items))] == ["superseded", "I will not."]
            page = path_of("requests", run.id, request["request"])
            fields = {"decision": "deny", "digest": request["digest"], "form": await site.form_token(page, page)}
            await site.post(page, fields)
            rest = [item async for item in items]
        # The recorded reply is one event, and the end of the run another; the decision before them ends no words.
        ends = [content.get("replied") for _, name, content in rest if name == "ended"]
        assert (ends, rest[-1][1], "Never." in json.dumps(rest)) == ([True, False], "end", False)


@pytest.mark.extended
async def test_the_words_of_a_sub_agent_are_on_its_own_page(rig: StartRig) -> None:
    """A sub-agent is a thread of its own: its page streams its reply, and its parent's page none of its words."""

    def script(conversation: Conversation) -> Reply:
        if conversation.request["messages"][0]["content"].startswith("Child"):
            return call("pay", cents=5, iban="DE89")
        return say("done") if conversation.replies else call("run_agent", agent="child", task="write")

    agents = [
        Agent(name="boss", instructions="Delegate.", tools=(), subagents=("child",), policy=POLICY),
        Agent(name="child", instructions="Child: pay.", tools=[pay, look], policy=POLICY, description="pays"),
    ]
    async with page_site(rig, POLICY, script, catalog=Catalog(agents=agents)) as site:
        parent = await site.rig.start("Go", thread="drafted-3")
        child = site.rig.client.get_workflow_handle("drafted-3.1")

        async def status() -> str:
            try:
                return str((await child.query("state"))["status"])
            except Exception as error:
                return str(error)

        await eventually(status, lambda found: found == "waiting_approval")
        await site.write(child, SECRET)
        await site.sign_in()
        async with following(site, child.id, str(await last_of(child))) as items:
            assert words(await anext(items)) == SECRET
        async with following(site, parent.id, str(await last_of(parent))) as items:
            await site.write(parent, "The parent's own.")
            assert words(await anext(items)) == "The parent's own."
        await parent.terminate()


@pytest.mark.extended
async def test_one_person_cannot_take_all_streams(rig: StartRig) -> None:
    """Somebody who opens more pages than are served is refused, and nobody else is."""
    from holdfast.gateway.page import drafts

    async with page_site(rig) as site:
        run = await site.rig.start("Pay", thread="drafted-4")
        await status_of(run, "waiting_approval")
        await site.sign_in()
        path, after = path_of("runs", run.id, "stream"), {"after": str(await last_of(run))}
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(base_url=site.url, cookies=site.http.cookies, limits=limits) as http:
            answers = [http.stream("GET", path, params=after, headers=STREAMS) for _ in range(drafts.PAGES_EACH)]
            opened = [await each.__aenter__() for each in answers]
            assert {each.status_code for each in opened} == {200}
            assert (await http.get(path, params=after, headers=STREAMS)).status_code == 429
            await site.write(run, SECRET)
            assert words(await anext(frames(opened[-1]))) == SECRET
            for each in answers:
                await each.__aexit__(None, None, None)
