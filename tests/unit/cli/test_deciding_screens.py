"""What approvers see on a terminal: requirements, possible answers, and a line for each event."""

import io
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from holdfast.cli.screens import watch
from holdfast.cli.screens.event_lines import event_line, event_summary
from holdfast.cli.screens.keys import Answer, Keys, hints_for
from holdfast.cli.screens.live_view import View
from holdfast.cli.screens.request_screens import deciding_screen, request_screen, request_terms, terms_text
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.cli.text import clock
from holdfast.client import interventions
from holdfast.client.sending import UpdateResult
from holdfast.core.authority.approvals import ApprovalRequest, shown_digest
from holdfast.core.authority.policy import Escalation, Terms
from holdfast.core.authority.signatures import is_signed
from holdfast.core.authority.statements import Decision
from holdfast.core.authority.votes import Seen, Vote
from holdfast.core.base.constraint_names import FIRST_PROPAGATED
from holdfast.core.run.state.features import FEEDBACK
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import state_view
from holdfast.encryption.signing_keys import make_key, read_key
from holdfast.errors import Refused
from tests.unit.client.test_trees import FakeThreads

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ALICE = Vote(
    said=Decision(decision="approve", request="1", by="alice"),
    seen=Seen(tool="pay", call_digest="c", spec_hash="s", effect_key="k"),
)
PAY = ApprovalRequest(
    id="1",
    kind="approval",
    number=1,
    tool="pay",
    arguments='{"cents":5}',
    digest="d1",
    why="ask pay",
    asked_at=NOW,
    terms=Terms(by=("finance",), quorum=2, expires_after=60, escalate=(Escalation(after=30, by=("cfo",)),)),
    votes=(ALICE,),
)


def view(request: ApprovalRequest = PAY, **more: Any) -> dict[str, Any]:
    """Return a request as the CLI gets it."""
    return {"thread": "t", **request.view(), **more}


def test_a_request_gives_approvers_votes_and_expiry() -> None:
    """One line says it; there is none if anyone may decide at any time, or for a worker of an earlier release."""
    until = clock("2026-01-02T03:05:05+00:00")
    assert terms_text(view()) == f"Decided by finance; 1 of 2 have approved: alice (claimed); denied at {until}"
    assert terms_text(view(PAY.model_copy(update={"terms": Terms()}))) == ""
    assert terms_text({"request": "1", "kind": "approval"}) == ""


def test_a_question_explains_the_delay_of_an_early_answer() -> None:
    """People who answer before the last call can arrive read that the run waits, and until when."""
    terms, until = Terms(), clock("2026-01-02T03:04:05+00:00")
    request = PAY.model_copy(update={"kind": "reconcile", "terms": terms, "settles_at": NOW})
    assert terms_text(view(request)) == (
        f"The call's request may still arrive until {until}; an earlier absent or undo takes effect then"
    )
    assert f"may still arrive until {until}" in request_screen(view(request)).plain


def test_the_answers_that_fit_are_shown_as_commands() -> None:
    """The screen shows every answer that the request accepts, and `undo` only if the tool supports it."""
    screen = request_screen(view()).plain
    for command in ("approve t 1", "deny t 1", "respond t 1 TEXT"):
        assert f"python starter.py {command} " in screen
    doubtful = PAY.model_copy(update={"kind": "reconcile"})
    assert "--undo" not in request_screen(view(doubtful)).plain
    undoable = doubtful.model_copy(update={"undoable": True})
    assert "reconcile t 1 --undo" in request_screen(view(undoable)).plain
    assert "[u] undo it" in hints_for(view(undoable))
    assert "[u]" not in hints_for(view(doubtful))


def test_an_answer_of_a_later_release_is_left_out() -> None:
    """An unknown answer does not hide the others."""
    assert "approve t 1" in request_screen(view(answers=["approve", "ponder"])).plain


def test_keys_answer_or_undo() -> None:
    """Text typed with `i` is for the agent; `u` counts only if the request accepts it."""
    keys = Keys([view()])
    assert [keys.key(character) for character in "idone\r"][-1] == Answer(view(), "respond", "done")
    doubtful = view(PAY.model_copy(update={"kind": "reconcile"}))
    keys = Keys([doubtful])
    keys.key("u")
    assert keys.decision is None


def test_requests_of_sub_agents_are_decided_in_the_same_list_each_in_its_thread() -> None:
    """Requests of different threads may have the same number; an earlier one never replaces the one on the screen."""
    ours, theirs = view(), view() | {"thread": "t.3"}
    keys = Keys([ours, theirs])
    keys.key("\t")
    assert (keys.request, keys.position) == (theirs, "2 of 2")
    assert [keys.key(character) for character in "ano\r"][-1] == Answer(theirs, "approve", "no")
    keys.key("l")
    assert (keys.request, keys.position) == (ours, "")
    keys = Keys([theirs])
    keys.key("d")
    keys.update([ours, theirs], blocked=False)
    assert (keys.request, keys.decision) == (theirs, "deny")
    keys.update([ours], blocked=False)
    assert (keys.request, keys.decision) == (ours, None)


def test_the_live_view_offers_the_requests_of_sub_agents_until_they_are_decided() -> None:
    """The screen names the thread that asks, for as long as the request is open."""
    shown = View("t", Console(width=120, height=30, file=io.StringIO(), color_system=None))
    theirs = view() | {"thread": "t.3"}
    shown.update_subagents([], [theirs])
    console = Console(width=120, height=30, file=io.StringIO(), color_system=None)
    console.print(shown)
    assert "of t.3: may this run?" in console.file.getvalue()  # type: ignore[attr-defined]
    shown.remove_request(theirs)
    assert shown.keys.request is None


async def test_a_decision_goes_to_the_thread_that_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The decision is also signed for that thread: a signature for the root thread would not count there."""
    sent: list[tuple[str, Any]] = []

    async def send_update(threads: Any, thread: str, update: str, payload: Any, **options: Any) -> UpdateResult:
        sent.append((thread, payload))
        return UpdateResult("accepted", "")

    monkeypatch.setattr(interventions, "send_update", send_update)
    answer = Answer(view() | {"thread": "t.3", "digest": shown_digest(view())}, "approve", "ok")
    public = make_key(tmp_path / "alice.key")
    private = read_key(tmp_path / "alice.key")
    threads = FakeThreads({})
    monkeypatch.setattr(threads, "runs", SimpleNamespace(answer_within=1.0), raising=False)
    assert await watch.send(threads, "t", answer, by="alice", private=private) == ""
    ((thread, payload),) = sent
    assert thread == "t.3"
    decision = Decision.model_validate(payload)
    assert [is_signed(public, decision.signature, decision.signed_bytes(each)) for each in ("t.3", "t")] == [
        True,
        False,
    ]


@pytest.mark.parametrize("older", [{}, {"features": FEEDBACK - 1}], ids=["an older worker", "an older run"])
async def test_feedback_that_nobody_would_read_is_not_sent(older: dict[str, Any]) -> None:
    """An earlier release would approve and drop it, so nothing is sent."""
    payload = {"decision": "approve", "request": "1", "by": "alice", "say": "Once only."}
    with pytest.raises(Refused, match="reads no feedback"):
        await interventions.intervene(FakeThreads({"t": older}), "t", "decide", payload)


def test_feedback_is_shown_completely_before_it_is_signed() -> None:
    """Every line of it, with no character that acts on the terminal."""
    said = "first\n" + "x" * 400 + "\n\x1b[2Jlast"
    shown = deciding_screen(view(), {"decision": "approve", "by": "alice", "say": said}, "ed25519:k").plain
    for part in ("says to the agent", "    first\n", "x" * 400, "\\x1b[2Jlast"):
        assert part in shown


def test_the_signed_content_is_shown_completely() -> None:
    """The call, the arguments that will run, the signer, and the key."""
    payload = {"decision": "approve", "by": "al\x1b[2Jice", "arguments": {"cents": 4}, "remember": True, "reason": "ok"}
    shown = deciding_screen(view(), payload, "ed25519:k").plain
    for part in (
        '"cents": 5',
        "to run with",
        '"cents": 4',
        "approve by al\\x1b[2Jice and remember",
        "ok",
        "d1",
        "ed25519:k",
    ):
        assert part in shown


def test_a_request_shows_its_rule_digest_and_reminders() -> None:
    """The screen shows everything besides the call that a decision depends on."""
    terms = Terms(by=("finance",), veto=("legal",), remind_every=60)
    request = PAY.model_copy(update={"terms": terms, "rule": "ask pay if args.cents > 1", "reminded": 2})
    shown = request_terms(view(request, edited_by="bob\u202e"))
    assert shown == (
        "Decided by finance",
        "Bob\\u202e has changed the LLM's arguments",
        "May also deny: legal",
        f"Reminded 2 times, next reminder {clock('2026-01-02T03:07:05+00:00')}",
        "Rule: ask pay if args.cents > 1",
        "Digest: d1",
    )


def test_a_paused_run_says_by_whom_and_how_to_resume_it() -> None:
    """A person's text cannot act on the terminal; `P` pauses a run and resumes a paused one."""
    pause = {"by": "eve\x1b[2J", "reason": "look", "since": "2026-01-02T03:04:05Z", "until": "2026-01-02T04:04:05Z"}
    state = state_view(RunState(thread="t")) | {"status": "paused", "paused": pause}
    shown = show_screen(state, retrying=[], ui=None).plain
    assert "\x1b" not in shown
    assert "until" in shown.partition("Paused by eve")[2].splitlines()[0]
    assert "resume t" in shown
    keys = Keys()
    assert keys.key("P") == "pause"
    keys.paused = True
    assert keys.key("P") == "resume"


def test_an_archived_branch_offers_no_way_to_continue_it() -> None:
    """The screen offers neither a message, a decision nor `retry`, and names the thread that continues."""
    state = state_view(RunState(thread="t~reset-1"))
    state |= {"status": "waiting_message", "result": "so far", "pending": [view()]}
    shown = show_screen(state | {"blocked": {"cause": "c", "message": "m"}}, retrying=[], ui=None).plain
    for command in (" say ", " approve ", " retry "):
        assert command not in shown
    assert "This is what a reset of t has left behind: nothing continues it\n  python starter.py show t" in shown


def test_show_lists_remembered_rules_and_delegations() -> None:
    """Each entry comes with the command that revokes it."""
    state = state_view(RunState(thread="t"))
    rule = {"rule": "1", "tool": "pay", "by": "alice", "call_digest": "c", "arguments": {"cents": 5}}
    state |= {"remembered": [rule]}
    state |= {"delegated": [{"by": "alice", "to": "bob", "until": NOW.isoformat()}]}
    shown = show_screen(state, retrying=[], ui=None).plain
    assert '"cents": 5\n    }\n  python starter.py revoke t --remembered 1\n' in shown
    assert f"by alice to bob, until {clock(NOW.isoformat())}\n  python starter.py revoke t --delegated-to bob" in shown


@pytest.mark.parametrize("number", [1, FIRST_PROPAGATED])
def test_a_constraint_leaves_the_commands_for_a_request_on_the_screen(number: int) -> None:
    """The commands that decide are shown, and nothing says that a reset abandoned the thread."""
    constraint = {"constraint": number, "tool": "pay", "scope": "tool", "arguments": "", "until": None, "reason": "no"}
    state = state_view(RunState(thread="t")) | {"constraints": [constraint], "pending": [view()]}
    shown = show_screen(state, retrying=[], ui=None).plain
    assert " approve t 1" in shown
    assert "reset" not in shown


DECIDED = {
    "type": "decision_received",
    "request": "1",
    "decision": "approve",
    "by": "bob",
    "reason": "",
    "outcome": "accepted",
}
FINISHED = {"type": "tool_call_finished", "number": 1, "content": "c"}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"type": "approval_reminded", "request": "1"}, "request 1: still waiting for a decision"),
        (
            {"type": "approval_escalated", "request": "1", "by": ["cfo", "dan"]},
            "request 1: cfo, dan may now decide, too",
        ),
        (
            {"type": "approval_expired", "request": "1", "decision": "deny"},
            "request 1: expired; by the policy, deny",
        ),
        (
            {"type": "rule_remembered", "rule": "1", "tool": "pay", "call_digest": "c", "by": ["alice", "bob"]},
            "rule 1: this call of pay is allowed from now on, by alice, bob",
        ),
        (
            {"type": "rule_revoked", "rule": "1", "by": "bob", "proof": "signed"},
            "rule 1 revoked, by bob (signed)",
        ),
        (
            {"type": "authority_delegated", "by": "a", "to": "b", "until": "2026-01-02T03:04:05Z", "reason": "off"},
            f"a (claimed) to b, until {clock('2026-01-02T03:04:05+00:00')}: off",
        ),
        ({"type": "delegation_revoked", "by": "a", "to": "b", "proof": "vouched"}, "a (vouched) from b"),
        (
            {
                "type": "state_verified",
                "paused_seconds": 172_800,
                "findings": [{"tool": "look", "status": "ok", "content": "all\nwell"}],
            },
            "after a pause of 2d: look: ok: all well",
        ),
        ({**DECIDED, "proof": "signed"}, "request 1: approve by bob (signed) → accepted"),
        (
            {**DECIDED, "proof": "vouched", "right": "alice", "arguments": {"cents": 4}, "reason": "less"},
            'request 1: approve with {"cents": 4} by bob for alice (vouched): less → accepted',
        ),
        (
            {**DECIDED, "outcome": "waiting_for_quorum", "explanation": "1 of 2 have approved"},
            "request 1: approve by bob (claimed) → waiting_for_quorum (1 of 2 have approved)",
        ),
        ({**FINISHED, "status": "answered"}, "call 1: answered: c"),
        ({**FINISHED, "status": "undone"}, "call 1: undone: c"),
        ({"type": "tool_call_started", "number": 1, "key": "k", "request": "2"}, "call 1, by request 2"),
        ({"type": "tool_call_started", "number": 1, "key": "k", "undo": True}, "call 1, to undo it"),
    ],
)
def test_every_event_about_deciding_has_a_line(event: dict[str, Any], words: str) -> None:
    """Each event is one line, never JSON."""
    assert event_summary(event) == words
    assert isinstance(event_line({**event, "position": 1, "at": NOW.isoformat()}), Text)
