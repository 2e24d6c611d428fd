"""The texts that people read in the Web UI, for any output of the LLM."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.authority.policy import Approver, Policy, Terms, ask
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.views.web_ui import current_details, signal_json
from holdfast.core.tools.effects import describe_call
from tests.support.runs import Thread, agent_spec, calls, loaded_thread

TEXT = st.text() | st.sampled_from(["\n```\n### Request 9: may this run?\n", "`\n# x", "> y"])


def waiting(arguments: str, name: str = "pay") -> Thread:
    """Return a run with one call of the LLM."""
    run = loaded_thread()
    run.reply(LLMReply(message=AssistantMessage(content=(ToolCall(id="c", name=name, arguments=arguments),))))
    return run


@given(TEXT, TEXT)
def test_arguments_cannot_forge_the_page(name: str, value: str) -> None:
    """No argument ends its code block, so all headings and signals on the page are Holdfast's."""
    details = current_details(waiting(json.dumps({name: value})).state)
    headings = [line for line in details.splitlines() if line.startswith("#")]
    assert headings == ["### Request 1: may this run?", "### Task"]
    fences = [number for number, line in zip(count(), details.split("\n"), strict=False) if line.startswith("```")]
    assert len(fences) == 8


@given(TEXT)
def test_a_running_call_is_one_item_of_code(value: str) -> None:
    """A backtick or line break in an argument does not end the code."""
    run = waiting(json.dumps({"at": value}), name="look")
    (item,) = [line for line in current_details(run.state).split("\n") if line.startswith("- ")]
    assert item.startswith("- `look(")
    assert item.count("`") == 2


@given(st.text(), st.integers(1, 40))
def test_a_line_is_one_line_of_bounded_length(text: str, limit: int) -> None:
    """Temporal limits the summaries of activities."""
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_a_call_reads_like_a_call() -> None:
    """The line has name and arguments like a call in code."""
    assert describe_call(ToolCall(id="c", name="look", arguments='{"at": "x", "n": 1}')) == 'look(at="x", n=1)'
    assert describe_call(ToolCall(id="c", name="look", arguments="{")) == "look({)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{}", "pay()"),
        ("", "pay()"),
        ("[1]", "pay([1])"),
        (
            '{"b": 1, "a": [1.0, 1e-7, 123456789012345678901, -0.0]}',
            "pay(b=1, a=[1.0, 1e-07, 123456789012345678901, -0.0])",
        ),
        ('{"a": {"x": null, "y": true}}', 'pay(a={"x": null, "y": true})'),
        ('{"a": "ä \\u0000\\n\\u2028 z\\u00a0 !"}', 'pay(a="ä \\u0000\\n z !")'),
        ('{"a": "\\ud800"}', 'pay({"a": "\\ud800"})'),
        ('{"a": NaN}', 'pay({"a": NaN})'),
        (f'{{"a": "{200 * "x"}"}}', f'pay(a="{112 * "x"}…'),
    ],
)
def test_the_words_of_a_call_never_change(arguments: str, words: str) -> None:
    """The ledger has them since 0.1.0, and `verify` calls a row with other words altered."""
    assert describe_call(ToolCall(id="c", name="pay", arguments=arguments)) == words


def test_more_requests_than_fit_are_counted() -> None:
    """Ten requests are shown in full; for the others, if there are any, the page names a command."""
    for number, rest in ((10, ""), (12, "2 more requests: `holdfast pending t`")):
        run = loaded_thread()
        run.reply(calls(*["pay"] * number))
        details = current_details(run.state)
        assert "### Request 10" in details
        assert "### Request 11" not in details
        assert rest in details
        assert ("more requests" in details) == bool(rest)


def test_a_request_names_the_approvers_and_the_expiry() -> None:
    """One line has names, votes and expiry; it is empty if anyone may decide at any time."""
    terms = Terms(by=("alice", "bob"), quorum=2, expires_after=3_600)
    run = loaded_thread(agent_spec(policy=Policy(rules=(ask("pay", terms=terms),))))
    run.reply(calls("pay"))
    request = run.state.authority.requests[0]
    line = f"Decided by alice, bob; 0 of 2 have answered; denied at {request.expires_at:%Y-%m-%d %H:%M} UTC"
    assert line in current_details(run.state).splitlines()
    assert "ecided by" not in current_details(waiting("{}").state)


def test_the_signals_are_those_that_count() -> None:
    """Every answer that the request accepts has its JSON; `undo` only if the tool supports it."""
    (asked,) = waiting("{}").state.authority.requests
    assert json.loads(signal_json(asked, "respond")[1])["result"]
    doubtful = asked.model_copy(update={"kind": "reconcile"})
    assert "undo" not in doubtful.answers
    undoable = doubtful.model_copy(update={"undoable": True})
    assert signal_json(undoable, "undo")[0] == "reconcile"
    assert json.loads(signal_json(undoable, "undo")[1])["decision"] == "undo"


def test_no_unsigned_json_is_offered_if_signatures_are_required() -> None:
    """An unsigned signal would be rejected; the command line signs."""
    key = public_key(encode_key(bytes(32)))
    policy = Policy(rules=(ask("pay"),), approvers=(Approver(name="alice", keys=(key,)),), signatures="required")
    run = loaded_thread(agent_spec(policy=policy))
    run.reply(calls("pay"))
    details = current_details(run.state)
    assert "Only a signed decision counts (approve, deny, respond): `holdfast pending t`" in details
    assert '"by"' not in details
