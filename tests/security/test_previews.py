"""A preview quotes what files have, and its function may do anything: neither changes the screen or what runs."""

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from holdfast import Agent, Catalog, Policy, Terms, ToolContext, allow, ask, tool
from holdfast.activities.notify_formats import FENCE, Links, encode_notice
from holdfast.activities.tool_calls.previews import MOST_CHARS
from holdfast.cli.screens.live_view import View
from holdfast.cli.screens.request_screens import deciding_screen, request_screen
from holdfast.config.webhooks import Receiver
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.claims import MARK
from holdfast.core.authority.previews import PREVIEW_CHARS, PREVIEWED, CallPreview, preview_rows
from holdfast.core.base.text import invisible
from holdfast.core.log.event_log import event_json
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.state.features import PREVIEWS
from holdfast.core.run.views.deciders import pending_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.secrets import Secrets
from holdfast.testing import call, say, steps, together
from holdfast.workspace.file_tools import workspace_tools
from holdfast.workspace.memory.tools import memory_tools
from tests.security.test_claims import ATTACKS
from tests.support.rig import PATIENCE, Rig, StartRig, answer_of, check_thread, eventually
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec

PAY = agent_spec(tools=(tool_spec("pay", Effect.UNSAFE, previews=True),), policy=Policy(rules=(ask("pay"),)))


def asking(preview: CallPreview) -> Thread:
    """Return a thread that asks to pay, with this preview."""
    thread = loaded_thread(PAY, features=PREVIEWS)
    thread.reply(calls("pay"))
    thread.preview(**preview.model_dump())
    return thread


def screens(thread: Thread) -> list[str]:
    """Return the terminal's screens of the open request, in 80 columns."""
    (request,) = pending_view(thread.state)
    request |= {"thread": "t"}
    view = View("t", Console(width=80, height=60, file=io.StringIO(), color_system=None))
    for event in thread.log:
        view.add(event_json(event))
    printed = []
    payload = {"decision": "approve", "request": "1", "by": "alice"}
    for screen in (request_screen(request), deciding_screen(request, payload), view):
        console = Console(width=80, height=60, file=io.StringIO(), color_system=None)
        with console.capture() as capture:
            console.print(screen, markup=False, emoji=False, highlight=False)
        printed.append(capture.get())
    return printed


def slack(thread: Thread) -> dict[str, Any]:
    """Return the Slack message about the open request."""
    (request,) = thread.state.authority.requests
    notice = Notice(occasion="request_opened", position=4, request=request, feedback=True)
    receiver = Receiver(url="https://x.example", format="slack", buttons=True)
    body: dict[str, Any] = json.loads(encode_notice(notice, receiver, thread="t", links=Links(), namespace="n"))
    return body


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_row_of_a_preview_passes_for_a_line_of_the_terminal(attack: str) -> None:
    """Each row that has a word of the preview begins with the mark, and nothing in it acts on the terminal."""
    for screen in screens(asking(CallPreview(text=attack))):
        assert not invisible(screen)
        rows = screen.split("\n")
        assert [row for row in rows if "0000" in row and not row.startswith(f"  {MARK}")] == []
        assert sum("Request 1 of t" in row for row in rows) == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_preview_forms_no_markup(attack: str) -> None:
    """In the Web UI and in Slack it is a code block, which it cannot end: no signal, link, mention or button. Slack
    shows each of its backticks, as one or as its escape.
    """
    preview = CallPreview(text=attack)
    thread = asking(preview)
    page = current_details(thread.state)
    block = page.split(f"**{PREVIEWED}**\n\n```text\n")[1].split("\n```\n")[0]
    assert all(line.startswith(MARK) for line in block.split("\n"))
    assert page.count("### Request") == 1
    assert page.count("To approve: `approve`") == 1
    body = slack(thread)
    texts = [block["text"]["text"] for block in body["blocks"] if block["type"] == "section"]
    shown = texts[texts.index(f"*{PREVIEWED}*") + 1]
    inner = shown.removeprefix(FENCE).removesuffix(FENCE)
    assert FENCE not in inner
    assert inner.replace(r"\u0060", "`").count("`") == "".join(preview_rows(preview)).count("`")
    assert not set("<>") & set(inner)
    assert not invisible(inner)
    assert sum(block["type"] == "actions" for block in body["blocks"]) == 1


def test_only_who_can_see_all_of_a_preview_is_offered_to_approve() -> None:
    """A longer one is cut: every screen says how much is missing, and pages without a way to the rest only deny."""
    cut = CallPreview(text="x" * PREVIEW_CHARS, size=9_000, artifact="sha256:0")
    for preview in (cut, CallPreview(text="<\n" * 4_000)):
        thread = asking(preview)
        buttons = [block for block in slack(thread)["blocks"] if block["type"] == "actions"]
        assert [each["value"].count('"deny"') for block in buttons for each in block["elements"]] == [1]
    thread = asking(cut)
    assert "To approve" not in current_details(thread.state)
    for screen in (screens(thread)[0], current_details(thread.state)):
        assert "Cut: the first 8,000 of 9,000 characters" in screen


OPENED = threading.Event()
"""Set once the requests are open: until then, a preview that hangs does."""

EVIL: dict[str, Any] = {
    "raises": lambda: 1 / 0,
    "exits": lambda: sys.exit(3),
    "hangs": lambda: OPENED.wait(PATIENCE),
    "lies": lambda: {"verdict": "allow"},
    "floods": lambda: "x" * (MOST_CHARS + 1),
    "surrogate": lambda: "\ud800",
    "leaks": lambda: os.environ.get("NOTHING", "the key is hunter2-hunter2"),
    "long": lambda: "x" * 20_000,
}
PROBLEMS = {
    "raises": "ZeroDivisionError",
    "exits": "SystemExit: 3",
    "hangs": "it took longer than 3 s",
    "lies": "returned a dict",
    "floods": "at most 1,000,000",
}


def preview_evil(kind: str) -> Any:
    """Return or do something that no preview should."""
    return EVIL[kind]()


@tool(effect="unsafe", preview=preview_evil, timeout=3)
def pay(kind: str, context: ToolContext) -> str:
    """Pay.

    Args:
        context: Filled in by Holdfast.
        kind: The account.
    """
    return f"paid {kind}"


def results_of(rig: Rig) -> list[str]:
    """Return the results of all calls, as the LLM reads them."""
    return [str(each["content"]) for each in rig.llm.requests[-1].json()["messages"] if each["role"] == "tool"]


def asks(request: str) -> Callable[[dict[str, Any]], bool]:
    """Return a condition on the state: this request alone is open."""
    return lambda state: [each["request"] for each in state["pending"]] == [request]


async def decided(rig: Rig, run: Any, request: str, **said: Any) -> str:
    """Approve a request; return the outcome."""
    answer: dict[str, str] = await answer_of(
        run.execute_update("decide", {"decision": "approve", "request": request, "by": "alice", **said})
    )
    return answer["outcome"]


@pytest.mark.extended
async def test_a_failing_preview_delays_no_decision(rig: StartRig) -> None:
    """Whatever its function does, the request opens, within its limits and without secrets, and says what happened."""
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=Policy(rules=(ask(),)), tools=[pay])])
    script = steps([together(*(call("pay", kind=kind) for kind in EVIL)), say("done")])
    OPENED.clear()
    async with rig(catalog, script, secrets=Secrets({"KEY": "hunter2-hunter2"})) as r:
        run = await r.start()
        try:
            state = await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == len(EVIL))
        finally:
            OPENED.set()
        previews = {each["arguments"]["kind"]: each["preview"] for each in state["pending"]}
        for kind, words in PROBLEMS.items():
            assert words in previews[kind]["problem"]
            assert previews[kind]["text"] == ""
        assert previews["surrogate"]["text"] == "?"
        assert "hunter2-hunter2" not in str(previews)
        assert len(previews["long"]["text"]) == PREVIEW_CHARS
        assert (previews["long"]["size"], bool(previews["long"]["artifact"])) == (20_000, True)
        for request in state["pending"]:
            assert shown_digest(request) == request["digest"]
            assert await decided(r, run, request["request"], digest=request["digest"]) == "accepted"
        assert (await run.result())["result"] == "done"
        await check_thread(r.client, run)


async def test_a_file_that_changes_after_it_was_shown_is_not_overwritten(rig: StartRig) -> None:
    """Somebody changes a file while people decide: the approved calls do not run, and the agent reads why. What nobody
    changed runs, although the first of the calls has changed its own file.
    """
    tools = [*workspace_tools(confine="never"), *memory_tools()]
    names = ["write_file", "edit_file", "commit_work"]
    policy = Policy(rules=(*(ask(name) for name in names), allow()), terms=Terms())
    catalog = Catalog(
        agents=[Agent(name="clerk", instructions="Write.", policy=policy, tools=names)],
        tools=tools,
    )
    first = together(
        call("write_file", path="mine.txt", content="new\n"),
        call("write_file", path="theirs.txt", content="new\n"),
        call("edit_file", path="edited.txt", old="a", new="b"),
        call("edit_file", path="stays.txt", old="a", new="b"),
    )
    async with rig(catalog, steps([first, call("commit_work", message="All"), say("done")])) as r:
        for name in ("theirs.txt", "edited.txt", "stays.txt"):
            (r.workspace / name).write_text("a\n")
        run = await r.start()
        state = await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 4)
        previews = {each["arguments"]["path"]: each["preview"]["text"] for each in state["pending"]}
        assert previews["mine.txt"] == "--- /dev/null\n+++ b/mine.txt\n@@ -0,0 +1 @@\n+new"
        assert previews["edited.txt"] == "--- a/edited.txt\n+++ b/edited.txt\n@@ -1 +1 @@\n-a\n+b"
        (r.workspace / "theirs.txt").write_text("a person's\n")
        (r.workspace / "edited.txt").write_text("a person's a\n")
        for request in state["pending"]:
            await decided(r, run, request["request"])
        state = await eventually(
            lambda: run.query("state"), lambda state: [p["tool"] for p in state["pending"]] == ["commit_work"]
        )
        assert (r.workspace / "theirs.txt").read_text() == "a person's\n"
        assert (r.workspace / "edited.txt").read_text() == "a person's a\n"
        assert (r.workspace / "mine.txt").read_text() == "new\n"
        assert (r.workspace / "stays.txt").read_text() == "b\n"
        results = results_of(r)
        assert [each.startswith("Not called: what ") for each in results] == [False, True, True, False]
        (request,) = state["pending"]
        await decided(r, run, request["request"])
        assert (await run.result())["result"] == "done"
        await check_thread(r.client, run)


async def test_a_commit_has_what_was_shown(rig: StartRig) -> None:
    """People see each file and the diff; a file that is added after that keeps the commit from being made."""
    policy = Policy(rules=(ask("commit_work"), allow()))
    names = ["write_file", "commit_work", "note_learning"]
    agent = Agent(name="clerk", instructions="Write.", policy=policy, tools=names)
    catalog = Catalog(agents=[agent], tools=[*workspace_tools(confine="never"), *memory_tools()])
    script = steps(
        [
            call("note_learning", title="One", text="It works."),
            call("write_file", path="shown.txt", content="shown\n"),
            call("commit_work", message="First"),
            call("commit_work", message="Second"),
            say("done"),
        ]
    )
    async with rig(catalog, script) as r:
        run = await r.start()
        for number in ("1", "2"):
            state = await eventually(lambda: run.query("state"), asks(number))
            shown = state["pending"][0]["preview"]["text"]
            assert "1\t0\tshown.txt" in shown
            assert "+shown" in shown
            assert ("late.txt" in shown) == (number == "2")
            (r.workspace / "late.txt").write_text("late\n")
            await decided(r, run, number)
        assert (await run.result())["result"] == "done"
        results = results_of(r)
        assert "has changed since it was shown" in results[2]
        assert results[3].startswith("All work is in commit")
