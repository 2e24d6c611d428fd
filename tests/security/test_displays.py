"""An approver has seen what runs: a display that clips a call says so, and offers no way to run it."""

import io
import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from holdfast.activities.notify_formats import ARGUMENT_CHARS, Links, encode_notice
from holdfast.cli.output import Output, harmless
from holdfast.cli.screens.live_view import View
from holdfast.cli.screens.thread_screens import list_screen
from holdfast.config.webhooks import Receiver
from holdfast.core.authority.approvals import ApprovalRequest, RequestKind
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.base.canonical import parsed
from holdfast.core.base.models import replace
from holdfast.core.base.text import CONTINUED, QUOTED_CHARS, columns_of, invisible, quoted
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.views.web_ui import COLUMNS, SHOWN_CHARS, current_details, signal_json
from tests.support.runs import loaded_thread

HIDDEN = "rm -rf /everything"
JSON = dict[str, Any]


def details(command: str) -> tuple[str, ApprovalRequest]:
    """Return the Web UI's details of a run that asks to run a command, and the request."""
    run = loaded_thread()
    call = ToolCall(id="c", name="pay", arguments=json.dumps({"command": command}))
    run.reply(LLMReply(message=AssistantMessage(content=(call,))))
    return current_details(run.state), run.state.authority.requests[0]


def test_the_web_ui_offers_no_approval_of_a_clipped_call() -> None:
    """Beyond 4,000 characters it shows how much is missing and the digest, but no signal that lets the call run."""
    page, request = details("x" * SHOWN_CHARS + HIDDEN)

    assert HIDDEN not in page
    assert f"**Cut: {SHOWN_CHARS:,} of " in page
    assert request.digest in page
    assert "holdfast pending t" in page
    assert "To approve:" not in page
    assert "To deny: `deny`" in page


def test_the_web_ui_offers_approval_of_what_it_shows() -> None:
    """Up to that length it shows the whole call, and the signal."""
    page, _ = details("x" * (SHOWN_CHARS - 200) + HIDDEN)

    assert HIDDEN in joined(page)
    assert "Cut:" not in page
    assert "To approve: `approve`" in page


def joined(page: str) -> str:
    """Return a page with the rows of each line joined again."""
    return re.sub(rf"\n *{CONTINUED}", "", page)


@pytest.mark.parametrize(
    "value", ["x" * 500 + HIDDEN, "日本" * 200 + HIDDEN, " " * 500 + HIDDEN, "a\n" + "y" * 99 + HIDDEN]
)
def test_the_web_ui_shows_no_line_that_its_edge_would_clip(value: str) -> None:
    """Its code blocks do not wrap, so every row of the arguments is as narrow as a phone."""
    page, _ = details(value)
    block = page.split("```text\n")[1].split("\n```")[0]

    assert HIDDEN in joined(block)
    assert max(sum(map(columns_of, row)) for row in block.split("\n")) <= COLUMNS


def test_the_web_ui_renders_no_markup_from_others() -> None:
    """Task and result of any kind form no heading, link, image or HTML, and no invisible character reaches the page."""
    attack = "# x\n![a](https://e.example)\n<img src=x onerror=alert(1)>\n[a](b)\n```\n- \u202eb\u200b\n1. c"
    run = loaded_thread()
    state = replace(run.state, task=attack, result=attack, outcome="completed")

    page = re.sub(r"`[^`\n]+`", "", current_details(state))  # code forms no markup

    assert not invisible(page)
    for markup in ("\n# ", "> # ", "![", "<img", "\n```", "> - ", "> 1. ", "[a"):
        assert not re.search(rf"(?<!\\){re.escape(markup)}", page)


@pytest.mark.parametrize(
    "address",
    ["https://evil.example/approve", "HTTP://evil.example", "www.evil.example", "pay@evil.example", "a:ftp://x"],
)
def test_addresses_from_others_do_not_become_links(address: str) -> None:
    """A renderer that links bare addresses finds none in a task, a result or a reason."""
    run = loaded_thread()
    state = replace(run.state, task=f"see {address}, `{address}` [x]({address})")

    page = current_details(state)

    assert page.count(address) == 3
    assert address not in re.sub(r"`[^`\n]+`", "", page)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "a@" * 500_000, "http://e " * 100_000, "`" * 1_000_000])
def test_escaping_takes_linear_time(text: str) -> None:
    """Long text of any kind is escaped fast, because workers hold up every run meanwhile."""
    began = time.process_time()
    quoted(text, len(text))
    assert time.process_time() - began < 40


def test_the_summary_of_a_run_contains_no_markup() -> None:
    """The Web UI renders summaries as Markdown: a task forms no link there; the memo for lists stays unescaped."""
    task = "See https://evil.example/x and [x](https://evil.example)\nmore"
    assert summary(task) == "See `https://evil.example/x` and `[x](https://evil.example)`"
    assert memo(task) == {"task": "See https://evil.example/x and [x](https://evil.example)"}


def test_no_field_of_a_list_acts_on_the_terminal() -> None:
    """Ids and search attributes from anyone who reaches Temporal neither clear the screen nor reorder or add lines."""
    attack = "a\x1b[2J\u202eb\nc\x9b1m"
    row = {
        "thread": attack,
        "status": attack,
        "agent": attack,
        "task": attack,
        "step": 1,
        "pending": 0,
        "wakes_at": None,
    }
    screen = list_screen([{**row, "started_at": datetime.now(UTC).isoformat(), "usage": None, "llm": None}])

    assert not invisible(screen.plain)
    assert screen.plain.count("\n") == 1


def test_the_output_escapes_what_a_screen_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    """The output itself escapes every character that could act on the terminal, and keeps the styles."""
    Output(as_json=False).result({}, Text.assemble("a\x1b[2Jb", ("c\u202ed", "bold"), "e"))
    assert capsys.readouterr().out == "a\\x1b[2Jbc\\u202ede\n"
    assert [span.style for span in harmless(Text.assemble("a\x1b", ("c\u202ed", "bold"))).spans] == ["bold", "bold"]


def test_the_json_to_send_counts_only_for_the_call_shown() -> None:
    """The JSON that lets a call run names the digest; JSON that lets nothing run does not need it."""
    _, request = details(HIDDEN)
    assert json.loads(signal_json(request, "approve")[1])["digest"] == request.digest
    assert "digest" not in json.loads(signal_json(request, "deny")[1])


def test_the_json_to_send_stands_above_long_arguments() -> None:
    """Nobody has to scroll past a long call to find the answer; the page says where the arguments are."""
    page, _ = details("x\n" * 2_000)
    assert page.index("Its arguments are below") < page.index("To approve:") < page.index("```text")


def test_rejected_signals_are_listed_with_the_reason() -> None:
    """The Web UI shows why a decision did not count, because its sender gets no other answer."""
    run = loaded_thread()
    run.reply(LLMReply(message=AssistantMessage(content=(ToolCall(id="c", name="pay", arguments="{}"),))))
    for number in range(5):
        run.signal("approve", {"request": f"9{number}", "by": "# mallory"})
    run.signal("aprove", {"request": "1"})

    page = current_details(run.state, run.run.last_refusals)

    refused = page.split("### Refused\n")[1].split("###")[0].strip().splitlines()
    assert len(refused) == 3
    assert "no such signal" in refused[-1]
    assert "approve on request 94 by # mallory did not count (unknown request)".replace("#", "\\#") in refused[1]


def test_a_clipped_task_says_so() -> None:
    """The task stands above each request, and shows how much of it is missing."""
    run = loaded_thread()
    state = replace(run.state, task="y" * QUOTED_CHARS + HIDDEN)

    page = current_details(state)

    assert HIDDEN not in page
    assert f"cut: {QUOTED_CHARS:,} of {QUOTED_CHARS + len(HIDDEN):,} characters" in page


def slack(arguments: JSON, kind: RequestKind = "approval") -> str:
    """Return the Slack message about a request as text."""
    request = ApprovalRequest(
        id="1", kind=kind, number=0, tool="pay", arguments=json.dumps(arguments), digest="d" * 64, why="why",
        asked_at=datetime(2026, 1, 1, tzinfo=UTC), undoable=True,
    )  # fmt: skip
    notice = Notice(occasion="request_opened", position=4, agent="clerk", request=request)
    receiver = Receiver(url="https://x.example", format="slack", buttons=True)
    return encode_notice(notice, receiver, thread="t", links=Links(gateway="https://g.example"), namespace="n").decode()


def buttons(message: str) -> list[str]:
    """Return the decisions for which the message has buttons."""
    actions = [block for block in json.loads(message)["blocks"] if block["type"] == "actions"]
    return [json.loads(element["value"])["decision"] for block in actions for element in block["elements"]]


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "x" * ARGUMENT_CHARS + HIDDEN},
        {"command": "&" * (ARGUMENT_CHARS // 3) + HIDDEN},  # Slack's escaping makes it five times as long
    ],
)
def test_slack_has_no_approve_button_for_a_clipped_call(arguments: JSON) -> None:
    """For a clipped call it shows the digest, how to read the rest, and a button to deny, but none to approve."""
    message = slack(arguments)

    assert HIDDEN not in message
    assert "Not all arguments are shown" in message
    assert "d" * 64 in message
    assert buttons(message) == ["deny"]
    assert "starter.py pending t" in message
    assert "starter.py approve" not in message
    assert '\\"approve\\"' not in message


def test_slack_has_both_buttons_for_a_call_shown_in_full() -> None:
    """A short call is shown completely, with both buttons."""
    message = slack({"command": HIDDEN})

    assert HIDDEN in message
    assert "Not all arguments are shown" not in message
    assert buttons(message) == ["approve", "deny"]
    assert "starter.py approve t 1" in message


def test_slack_escapes_text_that_would_end_its_block() -> None:
    """Three backticks are written as JSON escapes: the same value, without markup by the LLM."""
    message = slack({"command": "```*bold*"})

    sections = [block["text"]["text"] for block in json.loads(message)["blocks"] if block["type"] == "section"]
    (code,) = [text for text in sections if "bold" in text]
    assert json.loads(code.strip("`")) == {"command": "```*bold*"}
    assert code.count("```") == 2
    assert buttons(message) == ["approve", "deny"]


def test_a_clipped_unknown_call_cannot_be_rerun_from_slack() -> None:
    """Slack offers neither `absent`, which reruns a clipped call, nor `undo`, which runs its reversal."""
    message = slack({"command": "x" * ARGUMENT_CHARS + HIDDEN}, "reconcile")

    assert "--absent" not in message
    assert "--undo" not in message
    assert "--happened" in message
    assert "--abandon" in message


@pytest.mark.parametrize("command", ["x\n" * 900, "y" * 20_000], ids=["many lines", "one long line"])
def test_the_live_view_accepts_no_approval_of_a_clipped_call(command: str) -> None:
    """Until all of a call was on the screen, the keys that approve do nothing, while `deny` works."""
    view, _ = live(command + "\n" + HIDDEN)
    screen = shown(view)

    assert HIDDEN not in screen
    assert "rows below" in screen
    assert "[a]" not in screen
    assert "[d]" in screen
    for key in "aA":
        assert "were not on the screen yet" in view.explain(key)
        assert view.keys.key(key) is None
        assert view.keys.decision is None
    view.scroll("end")
    assert HIDDEN in shown(view)
    view.keys.key("a")
    assert view.keys.decision is None, "the middle was skipped"
    view.keys.key("d")
    assert view.keys.decision == "deny"


def test_the_live_view_accepts_an_approval_of_a_call_shown_in_full() -> None:
    """A short call is shown completely, with its key."""
    view, _ = live(HIDDEN)

    assert HIDDEN in shown(view)
    assert "[a]" in shown(view)
    view.keys.key("a")
    assert view.keys.decision == "approve"


def live(command: str) -> tuple[View, ApprovalRequest]:
    """Return the view of `starter.py watch` on a terminal of 24 lines, and its request."""
    run = loaded_thread()
    call = ToolCall(id="c", name="pay", arguments=json.dumps({"command": command}))
    run.reply(LLMReply(message=AssistantMessage(content=(call,))))
    view = View("t", Console(width=80, height=24, file=io.StringIO()))
    view.state = run.state
    (request,) = run.state.authority.requests
    view.keys.update([{**request.view(), "thread": "t", "arguments": parsed(request.arguments)}], blocked=False)
    return view, request


def shown(view: View) -> str:
    """Return the text on the terminal."""
    console = Console(width=200, height=24, file=io.StringIO())
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
