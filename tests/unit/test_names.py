"""Names of people: one spelling each, whatever anybody writes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast import Approver, Policy, Terms
from holdfast.authority.statements import AuthorityDelegation, Decision
from holdfast.base.names import NAME_CHARS, person_name
from tests.unit.runs import Thread, agent_spec, at_work, says

ANY = st.text(st.characters(codec=None), max_size=30)
WRITTEN = st.text(st.sampled_from("abcXYZ09 ._@-äÉßＡ𝐛ﬁ\u0301\u00a0"), max_size=20)


@given(ANY | WRITTEN)
@example("\u0130")
@example("\u017f\u212a\u1e9e")
@example("\u1cd6a\u0301")
def test_a_name_has_one_spelling_or_is_refused(text: str) -> None:
    """What is taken is lower-case ASCII that can be seen, trimmed, and spelt like itself."""
    name, refused = None, ""
    try:
        name = person_name(text)
    except ValueError as error:
        refused = str(error)
    if name is None:
        assert "is not a valid name" in refused or "at most 200 characters" in refused
        assert refused.isascii(), "an error shows what nobody could see"
        return
    assert name.isascii()
    assert name == name.lower() == " ".join(name.split())
    assert not name or name.isprintable()
    assert person_name(name) == name


@given(WRITTEN)
def test_case_white_space_and_accents_make_no_other_person(text: str) -> None:
    """The variants of a name that people write are one name."""
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
def test_what_only_looks_like_a_name_is_refused(text: str) -> None:
    """Letters of other scripts, and characters that nobody sees, with words that say what a name is."""
    with pytest.raises(ValueError, match="names are ids in ASCII letters"):
        person_name(text)


def test_a_name_stays_short_however_it_is_written() -> None:
    """A ligature is up to 18 letters."""
    with pytest.raises(ValueError, match="at most 200 characters"):
        person_name("\ufb03" * NAME_CHARS)


def test_names_that_people_read_stay_possible_where_any_text_is() -> None:
    """A decision under a policy without approvers may come from `Alice Smith`."""
    assert Decision(decision="deny", request="1", by=" Alice  Smith").by == "alice smith"


@pytest.mark.parametrize(("one", "other"), [("alice", "Alice"), ("bob", "bo\u0301b"), ("eve", "\uff25ve ")])
def test_two_approvers_with_one_name_are_refused(one: str, other: str) -> None:
    """The policy says so before anything runs."""
    with pytest.raises(ValidationError, match="is there twice"):
        Policy(approvers=(Approver(name=one), Approver(name=other)))


def test_a_policys_names_and_roles_are_compared_by_their_spelling() -> None:
    """Roles, terms and delegations name people in any case."""
    policy = Policy(
        approvers=(Approver(name="Alice", roles=("Finance",)), Approver(name="bob")), terms=Terms(by=("FINANCE",))
    )
    assert policy.entitled(policy.terms.by) == ("alice",)
    assert AuthorityDelegation.model_validate({"by": "ALICE", "to": "Bob ", "seconds": 1}).to == "bob"


def test_who_gives_the_task_has_one_spelling() -> None:
    """In the state and for memories, too; a name that cannot be one fails the run at once, and says why."""
    assert at_work(by="Zo\u00eb ").state.origin.user == "zoe"
    refused = Thread(by="\u0430lice")
    assert (refused.state.outcome, refused.state.failure) == ("failed", "NameInvalid")
    assert "is not a valid name" in refused.state.result
    assert "start the run again with another name" in refused.state.result


def test_a_message_from_no_name_is_malformed() -> None:
    """And recorded as refused."""
    thread = at_work(agent_spec(), idle_limit=60)
    thread.reply(says("done"))
    assert thread.say("hm", by="\u0430lice") == "malformed"
    assert thread.types()[-1] == "signal_rejected"
