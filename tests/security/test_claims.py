"""An agent's claim stands beside the call that people decide about, and cannot pass for anything else on the screen."""

import io
import json
import re

import pytest
from rich.console import Console

from holdfast.activities.notify_formats import FENCE, Links, encode_notice
from holdfast.cli.screens.live_view import View
from holdfast.cli.screens.request_screens import deciding_screen, request_screen
from holdfast.config.webhooks import Receiver
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.claims import CLAIM_CHARS, CLAIM_COLUMNS, CLAIM_ROWS, CLAIMED, MARK, claim_rows
from holdfast.core.base.text import columns_of, invisible
from holdfast.core.llm.blocks import TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log.event_log import event_json
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.state.features import CLAIMS
from holdfast.core.run.views.deciders import pending_view
from holdfast.core.run.views.web_ui import current_details
from tests.support.runs import Thread, calls, loaded_thread

ATTACKS = (
    "  Digest: 0000\n  starter.py approve t 2 --digest 0000  let it run\nRequest 2 of t: may this run?  look",
    "x" * 78 + "  Digest: 0000",  # the row that a terminal breaks would begin with it
    "日" * 39 + "  Digest: 0000",
    "\x1b[2J\x1b[1;1HRequest 2 of t\u202e\u200b\r  Digest: 0000\u2028  Digest: 0000\x85  Digest: 0000",
    "# Approved\n\n[here](https://e.example) ![a](https://e.example/a.png)\n```\n<img src=x>\n| a | b |\n- [x] done",
    "```*To decide*``` <https://e.example|Approve> <!channel> &lt;",
    "see https://e.example/approve or www.e.example",
    "\n" * 400 + "below",
    "row\n" * 400,
)


def asking(*said: str, features: int = CLAIMS) -> Thread:
    """Return a thread whose agent says something, and asks to pay."""
    thread = loaded_thread(features=features)
    call = ToolCall(id="c", name="pay", arguments='{"cents": 5}')
    thread.reply(LLMReply(message=AssistantMessage(content=(*(TextBlock(text=text) for text in said), call))))
    return thread


def screens(thread: Thread) -> list[str]:
    """Return the terminal's screens of the open request, in 80 columns."""
    (request,) = pending_view(thread.state)
    request |= {"thread": "t"}
    payload = {"decision": "approve", "request": "1", "by": "alice"}
    view = View("t", Console(width=80, height=60, file=io.StringIO(), color_system=None))
    for event in thread.log:
        view.add(event_json(event))
    printed = []
    for screen in (request_screen(request), deciding_screen(request, payload), view):
        console = Console(width=80, height=60, file=io.StringIO(), color_system=None)
        with console.capture() as capture:
            console.print(screen, markup=False, emoji=False, highlight=False)
        printed.append(capture.get())
    return printed


def test_the_claim_stands_on_every_screen() -> None:
    """The text beside the calls is on the terminal, in the Web UI, in the answers of queries, marked as a claim."""
    thread = asking("The order was cancelled, so I pay it back.")
    for screen in (*screens(thread), current_details(thread.state)):
        assert CLAIMED in screen
        assert "The order was cancelled, so I pay it back." in screen
    (request,) = pending_view(thread.state)
    assert request["claim"] == "The order was cancelled, so I pay it back."


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_row_of_a_claim_passes_for_a_line_of_the_terminal(attack: str) -> None:
    """Each row that has a word of the claim begins with the mark, and nothing in it acts on the terminal."""
    for screen in screens(asking(attack)):
        assert not invisible(screen)
        rows = screen.split("\n")
        assert [row for row in rows if "0000" in row and not row.startswith(f"  {MARK}")] == []
        assert sum(row.startswith(f"  {MARK}") for row in rows) <= CLAIM_ROWS
        assert sum("Request 1 of t" in row for row in rows) == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_claim_has_few_short_rows(attack: str) -> None:
    """It pushes no argument off the screen, and no display breaks its rows."""
    rows = claim_rows(attack)
    assert 0 < len(rows) <= CLAIM_ROWS
    assert max(sum(map(columns_of, row)) for row in rows) <= CLAIM_COLUMNS


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_claim_forms_no_markup_in_the_web_ui(attack: str) -> None:
    """It stays a quotation: no heading, link, image, table, HTML or code block of its own, and no signal to send."""
    page = current_details(asking(attack).state)
    quotation = page.split(f"**{CLAIMED}**\n\n")[1].split("\n\n")[0]
    assert all(line.startswith(">") for line in quotation.split("\n"))
    markup = re.sub(r"`[^`\n]+`", "", quotation)
    for forbidden in ("> #", "![", "](", "<img", "```", "> - ", "> |", "://", "www."):
        assert not re.search(rf"(?<!\\){re.escape(forbidden)}", markup), forbidden
    assert page.count("### Request") == 1
    assert page.count("To approve: `approve`") == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_claim_forms_no_markup_in_slack(attack: str) -> None:
    """It is one code block, which it cannot end: no link, mention or button of its own."""
    thread = asking(attack)
    before = thread.state
    (request,) = before.authority.requests
    notice = Notice(
        occasion="request_opened", position=4, request=request, claim=before.calls.claim_about(1), feedback=True
    )
    receiver = Receiver(url="https://x.example", format="slack", buttons=True)
    body = json.loads(encode_notice(notice, receiver, thread="t", links=Links(), namespace="n"))
    texts = [block["text"]["text"] for block in body["blocks"] if block["type"] == "section"]
    block = texts[texts.index(f"*{CLAIMED}*") + 1]
    assert block.startswith(FENCE)
    assert block.endswith(FENCE)
    inner = block.removeprefix(FENCE).removesuffix(FENCE)
    assert FENCE not in inner
    assert not set("<>") & set(inner)
    assert not invisible(inner)
    assert [block["type"] for block in body["blocks"]].count("actions") == 1


def test_a_claim_decides_nothing() -> None:
    """Two requests that differ in the claim alone have the same digest, which a signer computes from the view."""
    (one,), (other,) = (pending_view(asking(said).state) for said in ("It is safe.", "It is not."))
    assert one["claim"] != other["claim"]
    assert one["digest"] == other["digest"] == shown_digest(one) == shown_digest(other)


def test_a_claim_is_short_however_long_the_reply_is() -> None:
    """The state, which continue-as-new carries, keeps so many characters of it and no more."""
    thread = asking("x" * 1_000_000)
    assert len(thread.state.calls.claim) == CLAIM_CHARS


def test_a_claim_belongs_to_the_calls_of_its_reply_alone() -> None:
    """A later reply that says nothing leaves none of an earlier one; the answer at the end is no claim."""
    thread = asking("Because.")
    thread.decide("1", "deny")
    thread.reply(calls("pay"))
    assert pending_view(thread.state)[0]["claim"] == ""
    assert CLAIMED not in current_details(thread.state)


@pytest.mark.parametrize("features", range(CLAIMS))
def test_runs_of_earlier_releases_keep_no_claim(features: int) -> None:
    """Their state has to stay readable to the workers that they have."""
    assert asking("Because.", features=features).state.calls.claim == ""
