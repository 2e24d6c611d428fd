"""Attacks on forms that decide several requests at once: mixed, altered and forged ones, and those of other people."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Agent, Catalog, Policy, allow, ask
from holdfast.config.page_links import path_of
from holdfast.core.authority.policy import Approver, Terms
from holdfast.gateway.page.bulk_forms import SELECTED
from holdfast.gateway.page.guards import Origin
from holdfast.gateway.page.views.bulk import kind_of
from holdfast.testing import Conversation, Reply, call, say
from tests.support.pages import POLICY, PageSite, look, page_site, pay
from tests.support.rig import Rig, StartRig, events_of, status_of

JSON = dict[str, Any]
EYES = Policy(
    rules=(ask("pay", reason="four eyes"), allow()),
    approvers=(Approver(name="alice"), Approver(name="bob")),
    terms=Terms(by=("alice", "bob"), requester_may_decide=False),
)
CATALOG = Catalog(
    agents=[
        Agent(name="clerk", instructions="Work.", policy=POLICY, tools=[pay, look]),
        Agent(name="auditor", instructions="Work.", policy=EYES, tools=[pay, look]),
        Agent(name="watcher", instructions="Work.", policy=Policy(rules=(ask("look"),)), tools=[pay, look]),
    ]
)


def replies(conversation: Conversation) -> Reply:
    """Return a call whose arguments the task names; then the end."""
    if conversation.replies:
        return say("Done.")
    tool, text = conversation.last_user_message.split()
    return call("pay", cents=int(text), iban="DE1") if tool == "pay" else call("look", at=text)


async def waiting(rig: Rig, thread: str, task: str, **options: Any) -> JSON:
    """Start a run, and return the request that it waits for."""
    run = await rig.start(task, thread=thread, **options)
    (request,) = (await status_of(run, "waiting_approval"))["pending"]
    return {**request, "thread": thread}


def item(shown: JSON, **changed: str) -> str:
    """Return a request as a field of a form."""
    return json.dumps({name: shown[name] for name in ("thread", "request", "digest")} | changed)


async def send(
    site: PageSite, kind: str, items: Sequence[str], *, step: str = "decide", decision: str = "approve", **more: str
) -> tuple[int, str]:
    """Send a form of several requests; return the status and the text of the answer, without the server's time."""
    path = path_of("bulk", kind)
    session = site.sessions.find(site.http.cookies[Origin(site.url).cookie])
    assert session is not None
    fields: dict[str, str | list[str]] = {**more}
    fields |= {"step": step, "decision": decision, "item": list(items), "form": session.form_token(path)}
    answer = await site.post(path, fields)
    return answer.status_code, re.sub(r' data-now="[^"]*"', "", answer.text)


async def accepted(rig: Rig, *threads: str) -> list[str]:
    """Return which of the threads have an accepted decision."""
    found = []
    for thread in threads:
        events = await events_of(rig.client.get_workflow_handle(thread))
        found += [thread for event in events if event.type == "decision_received" and event.outcome == "accepted"]
    return found


async def test_a_forged_form_decides_nothing_more(rig: StartRig) -> None:
    """A form that mixes tools or rules decides nothing. Of one that names altered, foreign, closed and unknown
    requests, only those are decided that the person was shown and may decide; sent again, it decides nothing twice.
    """
    async with page_site(rig, script=replies, catalog=CATALOG) as site:
        one, two, three = [await waiting(site.rig, f"bulk-pay-{number}", f"pay {number}") for number in (1, 2, 3)]
        other_rule = await waiting(site.rig, "bulk-eyes-1", "pay 4", agent="auditor", by="ann")
        own = await waiting(site.rig, "bulk-eyes-2", "pay 5", agent="auditor", by="alice")
        other_tool = await waiting(site.rig, "bulk-look-1", "look it", agent="watcher")
        kind, eyes = kind_of(one), kind_of(other_rule)
        assert len({kind, eyes, kind_of(other_tool)}) == 3
        threads = ("bulk-pay-1", "bulk-pay-2", "bulk-pay-3", "bulk-eyes-1", "bulk-eyes-2", "bulk-look-1")
        await site.sign_in()

        for odd in (other_rule, other_tool):
            for step in ("review", "decide"):
                for chosen in (kind, kind_of(odd)):
                    status, text = await send(site, chosen, [item(one), item(odd)], step=step)
                    assert (status, "not all of one tool and one rule" in text) == (422, True), (odd["thread"], step)
        assert (await send(site, "nothing", [item(one)]))[0] == 422
        for wrong in (
            [],
            [item(one)] * (SELECTED + 1),
            ["{}"],
            ["[" * 2_000],
            [item(one)[:-1] + ', "by": "bob"}'],
            [item(one, digest="0" * 63)],
            [item(one, thread="")],
        ):
            assert (await send(site, kind, wrong))[0] == 422
        for forged in ("respond", "", "abandon"):
            assert (await send(site, kind, [item(one)], decision=forged))[0] == 422
        assert await accepted(site.rig, *threads) == []

        swapped = [item(one, digest=two["digest"]), item(two, digest=one["digest"]), item(three)]
        unknown = [item(three, request="9"), item(three, thread="nothing"), item(three, thread="../x\u202e")]
        status, text = await send(site, kind, [*swapped, *unknown], say="Thanks.")
        assert (status, text.count("has changed since"), text.count("Accepted")) == (200, 2, 1)
        assert "1 of 6" in text
        assert text.count("stay undecided") == 1
        assert "there is no thread" in text
        assert await accepted(site.rig, *threads) == ["bulk-pay-3"]

        status, text = await send(site, kind, [item(three), item(three)])
        assert (status, "not open any more" in text, "0 of 1" in text) == (409, True, True)
        (decided,) = [
            event
            for event in await events_of(site.rig.client.get_workflow_handle("bulk-pay-3"))
            if event.type == "decision_received"
        ]
        assert (decided.by, decided.via, decided.say) == ("alice", "gateway alice", "Thanks.")

        status, text = await send(site, eyes, [item(other_rule), item(own)])
        assert (status, "1 of 2" in text, "bob can do this" in text) == (200, True, True)
        assert await accepted(site.rig, *threads) == ["bulk-pay-3", "bulk-eyes-1"]


@pytest.mark.extended
async def test_nobody_decides_several_for_others(rig: StartRig) -> None:
    """A form of another site, without its token, or with that of another group, and one of a person who may not decide,
    who lacks the scope, or whose token does not reach the threads, decide nothing.
    """
    async with page_site(rig, script=replies, catalog=CATALOG) as site:
        one, two = [await waiting(site.rig, f"paid-{number}", f"pay {number}") for number in (1, 2)]
        kind = kind_of(one)
        path, items = path_of("bulk", kind), [item(one), item(two)]
        await site.sign_in()
        shown = (await site.http.get(path)).text
        assert shown.count('name="item"') == 2
        token = re.findall(r'name="form" value="([0-9a-f]+)"', shown)[-1]
        form: dict[str, str | list[str]] = {"step": "decide", "decision": "approve", "item": items, "form": token}
        single = path_of("requests", "paid-1", "1")
        other = {**form, "form": await site.form_token(single, single)}
        for fields, headers in (
            (form, {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}),
            (form, {"Origin": "null"}),
            (form, {"Host": "evil.example"}),
            ({**form, "form": ""}, {}),
            (other, {}),
        ):
            assert (await site.post(path, fields, headers)).status_code == 403
        assert (await site.post(path_of("bulk", kind_of(one)[::-1]), form)).status_code == 403

        await site.sign_in("of-reader")
        assert (await send(site, kind, items))[0] == 403
        assert "Several at once" not in (await site.http.get(path_of("inbox") + "?all=1")).text
        await site.sign_in("of-billing")
        status, text = await send(site, kind, items)
        missing = await send(site, kind, [item(one, thread="none-1"), item(two, thread="none-2")])
        assert (status, text) == (missing[0], missing[1].replace("none-", "paid-"))
        assert status == 409
        assert "paid-1" not in (await site.http.get(path)).text
        await site.sign_in("of-bob")
        status, text = await send(site, kind, items)
        assert (status, text.count("alice can do this, and you are signed in as bob")) == (409, 2)
        assert "Several at once" not in (await site.http.get(path_of("inbox") + "?all=1")).text
        assert await accepted(site.rig, "paid-1", "paid-2") == []
