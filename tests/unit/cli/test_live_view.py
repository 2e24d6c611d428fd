"""The live view on terminals of any size: all of a request can be read, and nothing unread runs."""

import io
import json
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from holdfast.cli.screens.keyboard import keys_in
from holdfast.cli.screens.keys import Answer, Edit
from holdfast.cli.screens.live_view import View, diff_lines
from holdfast.core.base.readable_json import readable_json
from holdfast.core.base.text import CONTINUED, invisible, wrapped
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.streams.chunks import Chunk
from holdfast.core.streams.drafts import Draft, DraftCall
from tests.support.runs import loaded_thread

SIZES = [(40, 10), (80, 10), (40, 24), (80, 24)]
HOSTILE = (
    "ls\x1b[2J\u202e\u200b\U000e0041" + " " * 300 + "; rm -rf /\r\n[a] approve\n" + "日本" * 60 + "\n\tlast line\n"
)


def waiting(*calls: tuple[str, dict[str, Any]], width: int = 80, height: int = 24) -> View:
    """Return the view of a run with one open request for each call."""
    run = loaded_thread()
    tool_calls = tuple(
        ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))
        for number, (name, arguments) in enumerate(calls)
    )
    run.reply(LLMReply(message=AssistantMessage(content=tool_calls)))
    view = View("t", Console(width=width, height=height, file=io.StringIO(), color_system=None))
    for event in run.log:
        view.add(event.model_dump(mode="json"))
    return view


def screen(view: View) -> list[str]:
    """Return the rows on the terminal."""
    console = view._console
    assert isinstance(console.file, io.StringIO)
    console.file.seek(0)
    console.file.truncate()
    console.print(view)
    return console.file.getvalue().removesuffix("\n").split("\n")


def all_seen(view: View) -> bool:
    """Return whether all of the request was on the screen."""
    assert view.keys.request
    return view.seen(view.keys.request)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_all_of_a_hostile_call_can_be_read_on_any_terminal(width: int, height: int) -> None:
    """Page by page every row appears, within the terminal and between marks; only then can the call be approved."""
    arguments = {"command": HOSTILE, "path": "a" * 500, "files": [{"text": "x\ny"}] * 5}
    view = waiting(("pay", arguments), width=width, height=height)
    for _ in range(200):
        rows = screen(view)
        assert len(rows) < height
        assert all(cell_len(row.rstrip()) <= width for row in rows)
        assert not invisible("".join(rows))
        if all_seen(view):
            break
        assert any("▼" in row for row in rows)
        assert view.explain("a")
        assert (view.keys.key("a"), view.keys.decision) == (None, None)
        assert view.scroll(" ")
    assert any("▲" in row and "the end" in row for row in screen(view))
    text = re.sub(rf"\n *{CONTINUED}", "", "\n".join(row.plain for row in view.scrolling.rows))
    for part in ("\\x1b[2J\\u202e\\u200b\\U000e0041", "; rm -rf /\\r", "a" * 500, "last line", "Digest: "):
        assert part in text
    view.keys.key("a")
    assert view.keys.decision == "approve"


def test_a_line_of_a_value_cannot_pass_for_the_views_own() -> None:
    """Each line of a block has a bar, each row that continues a line has another mark."""
    lines = readable_json({"text": "one\n}\n[a] approve", "n": 1}).split("\n")
    assert lines == ["{", '  "text": text of 3 lines,', "    │ one", "    │ }", "    │ [a] approve", '  "n": 1', "}"]
    rows = wrapped("    │ " + "word " * 20, 30)
    assert rows[0].startswith("    │ word")
    assert len(rows) > 3
    assert all(row.startswith(f"      {CONTINUED}") for row in rows[1:])
    assert "".join(row.removeprefix(f"      {CONTINUED}") for row in rows) == "    │ " + "word " * 20


def test_another_width_has_to_be_read_again() -> None:
    """After the terminal is resized, rows that were cut elsewhere count as unread."""
    view = waiting(("pay", {"command": "x" * 3_000}), width=80, height=10)
    while not all_seen(view):
        screen(view)
        view.scroll("page_down")
    view._console.width = 40
    screen(view)
    assert not all_seen(view)


def test_the_reason_of_an_ignored_key_is_shown_until_the_next_key() -> None:
    """On a small terminal, an old message would push the keys off the screen, and would be wrong once all was read."""
    view = waiting(("pay", {"command": "x" * 800}), width=40, height=12)
    screen(view)
    view.pressed = "a"
    assert any("read all of it first" in row for row in screen(view))
    while not all_seen(view):
        view.pressed = " "
        view.scroll(" ")
        rows = screen(view)
        assert not any("read all of it first" in row for row in rows)
    assert any("[a] approve" in row for row in screen(view))
    view.pressed = "a"
    assert not any("read all of it first" in row for row in screen(view))


def test_requests_are_shown_in_turn() -> None:
    """Tab shows the next request and its position; the decision is for the one on the screen."""
    view = waiting(("pay", {"n": 1}), ("pay", {"n": 2}), ("pay", {"n": 3}))
    for number in (1, 2, 3, 1):
        assert f"({number} of 3 open)" in screen(view)[1]
        assert any(f'"n": {number}' in row for row in screen(view))
        view.keys.key("\t")
    screen(view)
    view.keys.key("d")
    answer = view.keys.key("\r")
    assert isinstance(answer, Answer)
    assert answer.request["request"] == "2"


def test_an_edit_is_shown_before_it_is_sent() -> None:
    """The edited arguments appear beside the LLM's; Enter after `a` sends them; Esc discards them."""
    view = waiting(("pay", {"cents": 500, "to": "bob"}))
    screen(view)
    order = view.keys.key("e")
    assert isinstance(order, Edit)
    assert order.arguments == {"cents": 500, "to": "bob"}
    assert view.keys.propose(order.request, {"cents": 5, "to": "bob"})
    assert (view.keys.key("a"), view.keys.decision) == (None, None), "it was not on the screen yet"
    shown = screen(view)
    assert '-   "cents": 500,' in shown
    assert '+   "cents": 5,' in shown
    view.keys.key("d")
    assert view.keys.decision is None
    view.keys.key("a")
    answer = view.keys.key("\r")
    assert isinstance(answer, Answer)
    assert (answer.arguments, answer.remember) == ({"cents": 5, "to": "bob"}, False)
    assert view.keys.propose(order.request, {"cents": 4})
    view.keys.key("\x1b")
    assert view.keys.edited is None


def test_an_edit_of_thousands_of_lines_is_shown_in_full() -> None:
    """Every line of both texts appears, in order."""
    before, after = [f"│ a{number}" for number in range(5_000)], [f"│ b{number}" for number in range(5_000)]
    rows = [row.plain for row in diff_lines(before, [*after, before[-1]])]
    assert [row[2:] for row in rows if row[0] != "+"] == before
    assert [row[2:] for row in rows if row[0] != "-"] == [*after, before[-1]]
    assert [row.plain for row in diff_lines(["a"], ["a"])] == ["  a"]


def test_an_edit_of_a_request_that_has_changed_is_dropped() -> None:
    """The edited arguments belong to the request that was on the screen."""
    view = waiting(("pay", {"cents": 500}))
    screen(view)
    order = view.keys.key("e")
    assert isinstance(order, Edit)
    view.keys.update([{**order.request, "digest": "another"}], blocked=False)
    assert not view.keys.propose(order.request, {"cents": 5})


def test_always_allow_is_a_decision_of_its_own() -> None:
    """`A` approves and asks to remember; the prompt says so."""
    view = waiting(("pay", {"cents": 5}))
    assert any("[A] always allow this call" in row for row in screen(view))
    view.keys.key("A")
    assert any(row.startswith("always allow: reason") for row in screen(view))
    answer = view.keys.key("\r")
    assert isinstance(answer, Answer)
    assert (answer.decision, answer.remember, answer.arguments) == ("approve", True, None)


def test_a_long_reason_does_not_push_the_request_off_the_screen() -> None:
    """Typed text scrolls within its own rows."""
    view = waiting(("pay", {"cents": 5}), width=40, height=10)
    screen(view)
    view.keys.key("d")
    for _ in range(400):
        view.keys.key("x")
    rows = screen(view)
    assert len(rows) < 10
    assert any("▌" in row for row in rows)


def test_keys_have_names() -> None:
    """Arrow and page keys are named, other sequences are dropped, text stays as it is."""
    assert list(keys_in("a\x1b[A\x1b[6~b\x1b[15~\x1bOBc")) == ["a", "up", "page_down", "b", "down", "c"]


def test_a_reply_that_is_being_written_is_shown_and_cannot_draw_on_the_terminal() -> None:
    """The end of the text fits the terminal, control characters are visible, and the recorded reply replaces it."""
    view = View("t", Console(width=40, height=10, file=io.StringIO(), color_system=None))
    run = loaded_thread()
    for event in run.log:
        view.add(event.model_dump(mode="json"))
    text = "first words\n" + HOSTILE * 3 + "\nlast words"
    for number, start in enumerate(range(0, len(text), 50), 1):
        view.draft.add(Chunk(position=9, attempt=1, chunk=number, kind="text", text=text[start : start + 50]))
    rows = screen(view)
    assert any("last words" in row for row in rows)
    assert len(rows) <= 10
    assert "\x1b[2J" not in "".join(rows)
    view.draft.add(Chunk(position=9, attempt=2, chunk=0, kind="superseded"))
    assert not any("last words" in row for row in screen(view))


def test_what_sub_agents_write_is_shown_by_its_end_on_a_line_each() -> None:
    """A sub-agent cannot draw on the screen of a person who decides, nor take all of it."""
    view = View("top", Console(width=80, height=10, file=io.StringIO(), color_system=None))
    for each in loaded_thread().log:
        view.add(each.model_dump(mode="json"))
    view.subagent_drafts = {f"top.{n}": Draft(text=HOSTILE + "a\n" * 500 + f"end {n}") for n in (1, 2)} | {
        "top.3": Draft(),
        "top.4": Draft(calls={0: DraftCall("pay", '{"cents": 5')}),
    }
    rows = screen(view)
    assert [sum(f"top.{n}:" in row for row in rows) for n in (1, 2, 3, 4)] == [1, 1, 0, 1]
    assert any("end 2" in row for row in rows)
    assert any("pay {" in row for row in rows)
    assert len(rows) <= 10
    assert "\x1b[2J" not in "".join(rows)
