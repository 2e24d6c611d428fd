"""Notices lead to the page on which people decide, if there is one."""

import json

import pytest

from holdfast.activities.notify_formats import Links, encode_notice
from holdfast.config.webhooks import Receiver
from holdfast.core.authority.policy import Policy, ask
from holdfast.core.run.contracts.record import Notice
from tests.support.runs import Thread, agent_spec, calls

GATEWAY = "https://holdfast.example"
HOSTILE = "a/b|c>?<!channel>"


def notice() -> Notice:
    """Return a notice about an open request."""
    thread = Thread(agent_spec(policy=Policy(rules=(ask("pay"),))), features=2, by="dana")
    thread.load(2)
    thread.reply(calls("pay"))
    (request,) = thread.state.authority.requests
    return Notice(occasion="request_opened", position=4, request=request)


def encoded(given: Notice, *, format: str, gateway: str | None, thread: str = HOSTILE) -> str:
    """Return the body of a notice."""
    receiver = Receiver.model_validate({"url": "https://x.example", "format": format})
    return encode_notice(given, receiver, thread=thread, links=Links(gateway=gateway), namespace="n").decode()


def test_a_notice_leads_to_its_request() -> None:
    """A webhook and a Slack message have the address of the request; one about a run's end has that of the run. No
    thread's id leaves its segment of the address, or Slack's markup.
    """
    asked, ended = notice(), Notice(occasion="run_finished", position=9, status="completed")
    id = "a%2Fb%7Cc%3E%3F%3C%21channel%3E"
    page = f"{GATEWAY}/page/requests/{id}/1"
    assert json.loads(encoded(asked, format="holdfast", gateway=f"{GATEWAY}/"))["page"] == page
    assert f"<{page}|Decide on the page>" in encoded(asked, format="slack", gateway=GATEWAY)
    assert json.loads(encoded(ended, format="holdfast", gateway=GATEWAY))["page"] == f"{GATEWAY}/page/runs/{id}"
    assert f"<{GATEWAY}/page/runs/{id}|" in encoded(ended, format="slack", gateway=GATEWAY)


@pytest.mark.parametrize("gateway", [None, "http://holdfast.example"])
def test_without_a_page_there_is_no_link(gateway: str | None) -> None:
    """A gateway over plain HTTP serves no page to others, so a notice has no link to one."""
    assert json.loads(encoded(notice(), format="holdfast", gateway=gateway))["page"] is None
    assert "page" not in encoded(notice(), format="slack", gateway=gateway)
