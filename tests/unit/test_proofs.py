"""Signatures in a log: who said what was written, checked with the policy that was recorded before it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import RecordUnreadable, SettingsError
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    RuleRemembered,
    ToolCallStarted,
)
from holdfast.policy import Approver, Gateway, Policy, Terms, ask
from holdfast.runtime.proofs import Proofs
from holdfast.runtime.signing import check_shown, make_key, read_key, readable_by_others, signed
from holdfast.runtime.thread_errors import Refused
from holdfast.signatures import encode_key, is_signed, public_key, sign
from holdfast.snapshot import snapshot_of
from holdfast.statements import Decision, Delegation, read_decision
from tests.unit.runs import agent_spec, at_work, calls

ALICE, HOOKS, MALLORY = (encode_key(bytes([number]) * 32) for number in (1, 2, 3))
POLICY = Policy(
    approvers=(Approver(name="alice", keys=(public_key(ALICE),)), Approver(name="bob")),
    gateways=(Gateway(name="hooks", keys=(public_key(HOOKS),)),),
    signatures="required",
)
SAID: dict[str, Any] = {"decision": "approve", "request": "1", "by": "alice", "reason": "ok", "digest": "d"}


def loaded(policy: Policy = POLICY) -> AgentLoaded:
    """The agent, under a policy."""
    return AgentLoaded(spec=agent_spec(policy=policy), spec_hash="h", workspace="/w", position=2)


def received(private: str = ALICE, proof: str = "signed", thread: str = "t", **more: Any) -> DecisionReceived:
    """A signed decision, as it is recorded."""
    payload = signed({**SAID, **more}, Decision, thread=thread, private=private)
    read = read_decision(payload)
    assert isinstance(read, Decision)
    return DecisionReceived(
        position=7,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        outcome="accepted",
        digest_given=read.digest or "",
        proof=proof,  # type: ignore[arg-type]  # as the test gives it
        key=public_key(private),
        **read.model_dump(exclude={"digest"}),
    )


def fault(*events: AgentEvent) -> tuple[int, str] | None:
    """The first fault in these events."""
    proofs = Proofs("t")
    for event in events:
        proofs.add(event)
    return proofs.fault


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"arguments": {"a": [1, 2.5, None]}},
        {"remember": True},
        {"decision": "respond", "result": "é\n"},
        {"reason": ""},
    ],
)
def test_a_decision_verifies_as_it_was_sent(more: dict[str, Any]) -> None:
    """The event holds all that the signature is over, through JSON too."""
    event = received(**more)
    again = DecisionReceived.model_validate_json(event.model_dump_json(exclude_defaults=True))
    assert fault(loaded(), again) is None
    assert fault(loaded(), received(HOOKS, "vouched", by="bob", **more)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reason": "because"}, "does not fit"),
        ({"by": "bob"}, "does not fit"),
        ({"request": "2"}, "does not fit"),
        ({"arguments": {"cents": 1}}, "does not fit"),
        ({"digest_given": "e"}, "does not fit"),
        ({"key": public_key(MALLORY)}, "does not fit"),
        ({"signature": ""}, "does not fit"),
        ({"proof": "vouched"}, "knows no such key of a gateway"),
        ({"proof": ""}, "counted unsigned"),
    ],
)
def test_what_was_changed_does_not_verify(change: dict[str, Any], words: str) -> None:
    """Whoever writes the whole chain anew still has nobody's key."""
    found = fault(loaded(), received().model_copy(update=change))
    assert found is not None
    assert found[0] == 7
    assert words in found[1]


def test_a_key_has_to_be_in_the_policy() -> None:
    """A right signature by somebody's key is nobody's decision; nor is one that was given in another thread."""
    found = fault(loaded(), received(MALLORY))
    assert found is not None
    assert "knows no such key of alice" in found[1]
    assert fault(loaded(), received(thread="another")) is not None


def test_what_was_refused_needs_no_signature() -> None:
    """An unsigned decision that did not count is as it should be; so is one where signatures are optional."""
    unsigned = received().model_copy(update={"proof": "", "signature": "", "key": ""})
    assert fault(loaded(), unsigned.model_copy(update={"outcome": "unsigned"})) is None
    assert fault(loaded(Policy()), unsigned) is None


def test_a_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Only they can read it, it signs, and no file is ever overwritten, not even through a link."""
    path = tmp_path / "alice.key"
    public = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not readable_by_others(path)
    payload = signed({"by": "alice", "to": "bob", "seconds": 60}, Delegation, thread="t", private=read_key(path))
    said = Delegation.model_validate(payload)
    assert is_signed(public, said.signature, said.signed_bytes("t"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for taken in (path, link):
        with pytest.raises(SettingsError, match="no key is overwritten"):
            make_key(taken)
    assert public_key(read_key(path)) == public
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:x", "secret", "ed25519:" + "A" * 100, "é"])
def test_what_is_no_key_is_not_shown(text: str, tmp_path: Path) -> None:
    """It could be one but for a slip."""
    path = tmp_path / "k"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read_key(path)
    assert str(caught.value) == f"{path} holds no private key (one line, ed25519:…); `starter.py keygen` makes one"
    with pytest.raises(SettingsError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_what_cannot_be_read_is_not_signed() -> None:
    """The run says what is wrong with it."""
    assert signed({"decision": "perhaps"}, Decision, thread="t", private=ALICE) == {"decision": "perhaps"}


# What a decision was given on, and what it led to.


def decided_thread() -> list[AgentEvent]:
    """The log of a thread in which two people have signed an edited payment, to be remembered."""
    policy = Policy(
        rules=(ask("pay", terms=Terms(quorum=2)),),
        approvers=(Approver(name="alice", keys=(public_key(ALICE),)), Approver(name="bob", keys=(public_key(HOOKS),))),
        signatures="required",
    )
    thread = at_work(agent_spec(policy=policy))
    thread.reply(calls("pay"))
    for name, key, arguments in (("alice", ALICE, {"cents": 4}), ("bob", HOOKS, None)):
        (request,) = thread.state.requests
        payload: dict[str, Any] = {"decision": "approve", "request": "1", "by": name, "digest": request.digest}
        payload |= {"remember": True} | ({"arguments": arguments} if arguments else {})
        thread.update("decide", signed(payload, Decision, thread="t", private=key))
    assert thread.at_tools == [1]
    return thread.log


def test_a_thread_of_signed_votes_verifies() -> None:
    """Request, edit, quorum, rule and start: each follows from what is signed."""
    events = decided_thread()
    assert fault(*events) is None
    assert {"rule_remembered", "tool_call_started"} <= {event.type for event in events}


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (ApprovalRequested, {"arguments": '{"cents":5}'}, "not that of what it shows"),
        (ApprovalRequested, {"effect_key": "k" * 40}, "not that of what it shows"),
        (ToolCallStarted, {"key": "k" * 40}, "another effect than the one that started"),
        (RuleRemembered, {"call_digest": "c" * 64}, "no decision makes rule 1"),
        (RuleRemembered, {"by": ("alice",)}, "no decision makes rule 1"),
    ],
)
def test_what_does_not_follow_from_the_votes_does_not_verify(kind: Any, change: dict[str, Any], words: str) -> None:
    """Whoever writes the chain anew, and leaves the signed decisions as they are, changes nothing unnoticed."""
    events = decided_thread()
    place = next(index for index, event in enumerate(events) if isinstance(event, kind))
    event: Any = events[place]
    if kind is ApprovalRequested:
        change = {"request": event.request.model_copy(update=change)}
    found = fault(*events[:place], event.model_copy(update=change), *events[place + 1 :])
    assert found is not None
    assert found[0] == place
    assert words in found[1]


def test_a_decision_without_its_quorum_does_not_verify() -> None:
    """One of two signatures is left out of the log."""
    events = decided_thread()
    first, second = [event for event in events if isinstance(event, DecisionReceived)]
    alone = first.model_copy(update={"outcome": "accepted", "arguments": None, "signature": "", "proof": ""})
    found = fault(*(event for event in events if event is not second and event is not first), alone)
    assert found is not None
    optional = [event for event in events[: first.position] if not isinstance(event, AgentLoaded)]
    found = fault(*optional, alone)
    assert found is not None
    assert "accepted with 1 of 2 votes" in found[1]


def test_a_forged_rule_does_not_fold() -> None:
    """A remembered rule without the decision that makes it is refused by whoever reads the record."""
    events = decided_thread()
    rule = next(event for event in events if isinstance(event, RuleRemembered))
    before = events[: rule.position]
    assert [each.rule for each in snapshot_of([*before, rule]).state.remembered] == ["1"]
    for forged in ([*before, rule.model_copy(update={"tool": "wipe"})], [*before[:-1], rule], [*events, rule]):
        with pytest.raises(RecordUnreadable, match="which no decision just before it makes"):
            snapshot_of(forged)


@pytest.mark.parametrize(
    "lie",
    [{"arguments": {"cents": 1}}, {"tool": "look"}, {"digest": "d" * 64}, {"effect_key": "k"}, {"epoch": 1}],
)
def test_nothing_is_signed_but_what_is_shown(lie: dict[str, Any]) -> None:
    """A request that shows one thing and has the digest of another is not signed, and the error says so."""
    thread = at_work()
    thread.reply(calls("pay"))
    (request,) = thread.state.requests
    check_shown(request.view())
    with pytest.raises(Refused, match="nothing was signed"):
        check_shown(request.view() | lie)


def test_a_signature_and_a_key_have_one_writing() -> None:
    """Padding, the other alphabet, white space and bits that mean nothing are refused: a copy is a copy."""
    key, message = public_key(ALICE), b"said"
    signature = sign(ALICE, message)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bits = alphabet[alphabet.index(signature[-1]) ^ 1]
    assert is_signed(key, signature, message)
    for variant in (f"{signature}==", f"{signature}=", f"{signature}\n", f" {signature}", signature[:-1] + bits):
        assert not is_signed(key, variant, message)
    plain = next(sign(ALICE, bytes([n])) for n in range(100) if set("-_") & set(sign(ALICE, bytes([n]))))
    number = next(n for n in range(100) if sign(ALICE, bytes([n])) == plain)
    assert is_signed(key, plain, bytes([number]))
    assert not is_signed(key, plain.translate(str.maketrans("-_", "+/")), bytes([number]))
    assert not is_signed(f"{key}=", signature, message)
