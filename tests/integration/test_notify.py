"""Notifications: a real worker delivers them to real HTTP receivers."""

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from holdfast import Agent, Catalog, tool
from holdfast.activities.notify import Notifier, open_notifier
from holdfast.activities.notify_formats import Links
from holdfast.config.settings import Settings
from holdfast.config.webhooks import Receiver as To
from holdfast.core.loop.state import LoopLimits
from holdfast.testing import call, say, steps
from tests.support import looped
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of
from tests.support.serving import Receiver, served

SECRET = "shared with the receiver"
LINKS = Links(ui="http://ui.example", gateway="https://gateway.example/")
PAYS = steps([call("pay", amount=7, note="<!channel> ``` & co"), say("Paid.")])


@tool(effect="unsafe")
def pay(amount: int, note: str) -> str:
    """Pay."""
    return f"paid {amount}"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[pay])])


async def test_a_receiver_that_fails_at_first_gets_each_notice_once(rig: StartRig, tmp_path: Path) -> None:
    """Delivery is retried until it succeeds; every attempt has the same key and a valid signature."""
    receiver = Receiver(answers=[503, 500])
    async with served(receiver) as url:
        settings = Settings(
            home=tmp_path,
            webhooks=SecretStr(f"{url}/hook"),
            webhook_secret=SecretStr(SECRET),
            gateway_url=LINKS.gateway,
        )
        notifier = open_notifier(settings, ui=LINKS.ui)
        async with notifier, rig(CATALOG, PAYS, notifier=notifier) as worker:
            run = await worker.start(thread="ä/1")
            (request,) = (await status_of(run, "waiting_approval"))["pending"]
            await eventually(lambda: _asked(receiver), bool)

            opened = next(event for event in await events_of(run) if event.type == "approval_requested")
            assert [status for status, _, _ in receiver.requests] == [503, 500, 200]
            assert {f"%C3%A4%2F1:{opened.position}"} == {h["idempotency-key"] for _, h, _ in receiver.requests}
            for _, headers, body in receiver.requests:
                time, _, signed = headers["holdfast-signature"].partition(",")
                message = time.removeprefix("t=").encode() + b"." + body
                assert f"v1={hmac.new(SECRET.encode(), message, hashlib.sha256).hexdigest()}" == signed
            (notice,) = receiver.taken
            assert (notice["occasion"], notice["thread"], notice["agent"]) == ("request_opened", "ä/1", "clerk")
            assert request["digest"] == notice["request"]["digest"] == notice["answer"]["http"]["body"]["digest"]
            assert notice["answer"]["http"]["url"] == "https://gateway.example/threads/%C3%A4%2F1/decisions"
            assert "python starter.py approve ä/1 1" not in notice["answer"]["cli"]  # it needs quotes in a shell
            assert notice["ui"] == "http://ui.example/namespaces/default/workflows/%C3%A4%2F1"
            await run.terminate()


async def _asked(receiver: Receiver) -> list[Any]:
    return receiver.taken


@pytest.mark.extended
async def test_the_end_is_notified_before_the_run_closes(rig: StartRig) -> None:
    """The run closes in Temporal only once the notification of its end is delivered."""
    receiver = Receiver()
    async with served(receiver) as url:
        notifier = Notifier([To(url=url)])
        async with notifier, rig(CATALOG, steps([say("Nothing to do.")]), notifier=notifier) as worker:
            receiver.open.clear()
            run = await worker.start()
            await status_of(run, "completed")
            ended = asyncio.create_task(run.result())
            await asyncio.wait([ended], timeout=0.5)
            assert not ended.done()
            receiver.open.set()
            await ended

            (notice,) = receiver.taken
            assert (notice["occasion"], notice["status"], notice["text"]) == (
                "run_finished",
                "completed",
                "Nothing to do.",
            )
            await check_thread(worker.client, run)


@pytest.mark.extended
async def test_one_failing_receiver_causes_no_duplicates_for_others(rig: StartRig) -> None:
    """Receivers that have accepted a notification do not get it again."""
    good, bad = Receiver(), Receiver(answers=[500, 429])
    async with served(good) as one, served(bad) as two:
        notifier = Notifier([To(url=one), To(url=two)])
        async with notifier, rig(CATALOG, steps([say("Done.")]), notifier=notifier) as worker:
            run = await worker.start()
            await run.result()

            assert [status for status, _, _ in good.requests] == [200]
            assert [status for status, _, _ in bad.requests] == [500, 429, 200]


@pytest.mark.extended
@pytest.mark.parametrize("status", [400, 404, 410])
async def test_a_permanent_rejection_is_not_retried(rig: StartRig, status: int) -> None:
    """A 4xx is final: the run continues at once, and the receiver does not get that notification again."""
    receiver = Receiver(answers=[status])
    async with served(receiver) as url:
        notifier = Notifier([To(url=url)])
        async with notifier, rig(CATALOG, steps([say("Done.")]), notifier=notifier) as worker:
            await (await worker.start()).result()

            assert [status] == [each for each, _, _ in receiver.requests]


async def test_no_redirect_is_followed(rig: StartRig) -> None:
    """A notification is sent only to the configured address."""
    elsewhere = Receiver()
    async with served(elsewhere) as there:
        receiver = Receiver(answers=[307, 302], headers={"Location": there})
        async with served(receiver) as url:
            notifier = Notifier([To(url=url)])
            async with notifier, rig(CATALOG, steps([say("Done.")]), notifier=notifier) as worker:
                await (await worker.start()).result()

                assert [status for status, _, _ in receiver.requests] == [307, 302, 200]
                assert not elsewhere.requests


@pytest.mark.extended
async def test_slack_gets_its_own_format(rig: StartRig) -> None:
    """The message says what is asked, why, of whom and how to answer; the LLM's text is not read as markup."""
    receiver = Receiver()
    async with served(receiver) as url:
        notifier = Notifier([To(url=url, format="slack", buttons=True)], links=LINKS)
        async with notifier, rig(CATALOG, PAYS, notifier=notifier) as worker:
            run = await worker.start()
            (request,) = (await status_of(run, "waiting_approval"))["pending"]
            await eventually(lambda: _asked(receiver), bool)
            await run.terminate()

    (notice,) = receiver.taken
    text = json.dumps(notice)
    assert run.id in notice["text"]
    assert all(words in text for words in ("pay", request["digest"], "any approver", "never", "starter.py approve"))
    assert "<!channel>" not in text
    assert "&lt;!channel&gt;" in text
    sections = [block["text"]["text"] for block in notice["blocks"] if block["type"] == "section"]
    assert all(len(section) <= 3_000 and section.count("```") in (0, 2) for section in sections)
    (actions,) = [block for block in notice["blocks"] if block["type"] == "actions"]
    value = json.loads(actions["elements"][0]["value"])
    assert {"thread": run.id, "request": "1", "digest": request["digest"], "decision": "approve"} == value


@pytest.mark.extended
async def test_a_worker_without_webhooks_sends_nothing(rig: StartRig) -> None:
    """Without receivers, no notification activity is scheduled."""
    async with rig(CATALOG, steps([say("Done.")])) as worker:
        run = await worker.start()
        await run.result()

        loaded = next(event for event in await events_of(run) if event.type == "agent_loaded")
        assert not loaded.notify
        scheduled = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in (await run.fetch_history()).events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert "notify" not in scheduled


@pytest.mark.slow
async def test_a_loop_sends_notices_when_it_blocks_and_ends(rig: StartRig) -> None:
    """Each block and the end of a loop are notified once; the notification has the cause of the block."""
    receiver = Receiver()
    async with served(receiver) as url:
        notifier = Notifier([To(url=url)])
        async with notifier, rig(looped.catalog, looped.script, notifier=notifier) as worker:
            looped.prepare(workspace := worker.workspace / "loop", 2)
            loop = await worker.start_loop(workspace=str(workspace), limits=LoopLimits(iterations=1))
            await status_of(loop, "blocked")
            await loop.signal("retry", {"by": "alice"})
            await loop.result()
    notices = [notice for notice in receiver.taken if notice["thread"] == loop.id]
    assert [notice["occasion"] for notice in notices] == ["run_blocked", "run_finished"]
    assert "IterationLimit" in notices[0]["text"]
