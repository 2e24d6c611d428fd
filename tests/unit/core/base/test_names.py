"""Names of people: every name has one normalised spelling."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast import Approver, Policy, Terms
from holdfast.core.authority.statements import AuthorityDelegation, Decision
from holdfast.core.base.names import NAME_CHARS, person_name
from tests.support.runs import Thread, agent_spec, loaded_thread, says

ANY = st.text(st.characters(codec=None), max_size=30)
WRITTEN = st.text(st.sampled_from("abcXYZ09 ._@-äÉßＡ𝐛ﬁ\u0301\u00a0"), max_size=20)


@given(ANY | WRITTEN)
@example("\u0130")
@example("\u017f\u212a\u1e9e")
@example("\u1cd6a\u0301")
def test_a_name_has_one_spelling_or_is_rejected(text: str) -> None:
    """An accepted name is trimmed, visible, lower-case ASCII and normalises to itself."""
    name, rejected = None, ""
    try:
        name = person_name(text)
    except ValueError as error:
        rejected = str(error)
    if name is None:
        assert "is not a valid name" in rejected or "at most 200 characters" in rejected
        assert rejected.isascii(), "the error contains invisible characters"
        return
    assert name.isascii()
    assert name == name.lower() == " ".join(name.split())
    assert not name or name.isprintable()
    assert person_name(name) == name


@given(WRITTEN)
def test_variants_of_a_name_are_one_person(text: str) -> None:
    """Case and white space do not change the person that a name means."""
    try:
        name = person_name(text)
    except ValueError:
        return
    for variant in (f"  {text}\n", text.upper(), text.swapcase(), text.replace(" ", "   ")):
        assert person_name(variant) == name


@pytest.mark.parametrize(
    "text",
    ["\u0430lice", "al\u0456ce", "\u13aalice", "al\u200bice", "al\u00adice", "a\x07b", "a\tb", "\u0301", "\u202ealice"],
)
def test_lookalikes_of_a_name_are_rejected(text: str) -> None:
    """Letters of other scripts and invisible characters are rejected with the rule for names."""
    with pytest.raises(ValueError, match="names are ids in ASCII letters"):
        person_name(text)


def test_the_length_limit_applies_to_the_normalised_name() -> None:
    """A ligature may expand to several letters, up to 18."""
    with pytest.raises(ValueError, match="at most 200 characters"):
        person_name("\ufb03" * NAME_CHARS)


def test_a_name_may_contain_spaces() -> None:
    """A decision under a policy without approvers may come from `Alice Smith`."""
    assert Decision(decision="deny", request="1", by=" Alice  Smith").by == "alice smith"


@pytest.mark.parametrize(("one", "other"), [("alice", "Alice"), ("bob", "bo\u0301b"), ("eve", "\uff25ve ")])
def test_two_approvers_with_one_name_are_rejected(one: str, other: str) -> None:
    """A policy is rejected if two of its approvers normalise to the same name."""
    with pytest.raises(ValidationError, match="is there twice"):
        Policy(approvers=(Approver(name=one), Approver(name=other)))


def test_a_policys_names_and_roles_are_compared_after_normalisation() -> None:
    """Roles, terms and delegations may name people in any case."""
    policy = Policy(
        approvers=(Approver(name="Alice", roles=("Finance",)), Approver(name="bob")), terms=Terms(by=("FINANCE",))
    )
    assert policy.entitled(policy.terms.by) == ("alice",)
    assert AuthorityDelegation.model_validate({"by": "ALICE", "to": "Bob ", "seconds": 1}).to == "bob"


def test_the_sender_of_the_task_is_normalised() -> None:
    """The state holds the normalised name; an invalid one fails the run at once with the reason."""
    assert loaded_thread(by="Zo\u00eb ").state.origin.user == "zoe"
    rejected = Thread(by="\u0430lice")
    assert (rejected.state.outcome, rejected.state.failure) == ("failed", "NameInvalid")
    assert "is not a valid name" in rejected.state.result
    assert "start the run again with another name" in rejected.state.result


def test_a_message_from_an_invalid_name_is_malformed() -> None:
    """The message is recorded as rejected."""
    thread = loaded_thread(agent_spec(), idle_limit=60)
    thread.reply(says("done"))
    assert thread.say("hm", by="\u0430lice") == "malformed"
    assert thread.types()[-1] == "signal_rejected"
