"""Policies as files: their valid content, and the source location of each reported problem."""

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import Agent, Catalog
from holdfast.config.policy_file import MAX_BYTES, load_policy, read_policy
from holdfast.config.policy_forms import CONDITION_CHARS
from holdfast.core.authority.policy import (
    Approver,
    Escalation,
    Gateway,
    Policy,
    Rule,
    Terms,
    ToolUse,
    allow,
    ask,
    deny,
    evaluate,
)
from holdfast.core.base.durations import read_seconds, span_text
from holdfast.core.tools.effects import Effect
from holdfast.errors import PolicyError
from tests.support.policies import KEYS, POLICIES

EXAMPLES = Path(__file__).parents[3] / "examples" / "policies"


def read(text: str | bytes) -> Policy:
    """Return the policy in a file with that text."""
    return read_policy(text if isinstance(text, bytes) else text.encode(), name="p.yaml")


def problems(text: str | bytes) -> list[str]:
    """Return the problems of a file, line by line."""
    with pytest.raises(PolicyError) as caught:
        read(text)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return str(caught.value).splitlines()


WRITTEN = f"""
signatures: required
approvers:
  - name: alice
    roles: [finance]
    keys: ["{KEYS[0]}"]
  - {{name: bob, roles: [cfo, finance]}}
gateways: [{{name: hooks, keys: ["{KEYS[1]}"]}}]
terms: {{expires_after: 7d, remind_every: 4h}}
rules:
  - deny: "wipe_*"
    reason: we keep everything
  - ask: pay
    when: args.cents > 100000
    terms: {{by: [finance], quorum: 2, requester_may_decide: false, escalate: [{{after: 1d, by: [cfo]}}]}}
  - allow: "*"
    effect: read
    depth: 1
"""


def test_a_file_equals_the_same_policy_in_python() -> None:
    """A policy in a file equals the same policy written in Python and has the same hash."""
    policy = Policy(
        signatures="required",
        approvers=(
            Approver(name="alice", roles=("finance",), keys=(KEYS[0],)),
            Approver(name="bob", roles=("cfo", "finance")),
        ),
        gateways=(Gateway(name="hooks", keys=(KEYS[1],)),),
        terms=Terms(expires_after=7 * 86_400, remind_every=4 * 3_600),
        rules=(
            deny("wipe_*", reason="we keep everything"),
            ask(
                "pay",
                when="args.cents > 100000",
                terms=Terms(
                    by=("finance",),
                    quorum=2,
                    requester_may_decide=False,
                    escalate=(Escalation(after=86_400, by=("cfo",)),),
                ),
            ),
            Rule(verdict="allow", effect=Effect.READ, depth=1),
        ),
    )
    assert read(WRITTEN) == policy
    assert read(WRITTEN).hash == policy.hash


@given(POLICIES)
def test_a_policy_survives_a_round_trip_through_a_file(policy: Policy) -> None:
    """A policy of printable text, written as YAML or as JSON, is read back equal and with the same hash."""
    for text in (yaml.safe_dump(policy.model_dump(mode="json"), allow_unicode=True), policy.model_dump_json()):
        again = read(text)
        assert again == policy
        assert again.hash == policy.hash


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ["p.yaml: the file is empty; write {} for a policy without rules"]),
        ("# nothing yet", ["p.yaml: the file is empty; write {} for a policy without rules"]),
        (b"rules: []\nterms: \xff", ["p.yaml:2:8: the file is not UTF-8"]),
        ("- a", ["p.yaml:1:1: it has to consist of fields with values, as in `name: alice`"]),
        ("rule: []", ["p.yaml:1:1: rule: there is no such field; did you mean rules?"]),
        ("rules: 5", ["p.yaml:1:8: rules: it has to be a list"]),
        ("rules:\n  - 5", ["p.yaml:2:5: rules[0]: it has to consist of fields with values, as in `name: alice`"]),
        (
            "rules:\n  - alow: x",
            ["p.yaml:2:5: rules[0]: a rule needs allow, ask, deny or later, as in `- ask: pay`; did you mean allow?"],
        ),
        ("rules:\n  - ask:", ['p.yaml:2:9: rules[0].ask: no tool is named; use "*" for all tools']),
        (
            "rules:\n  - {ask: a, deny: b}",
            ["p.yaml:2:5: rules[0]: the rule has ask and deny; give it one verdict with one tool pattern"],
        ),
        (
            "rules:\n  - deny: 5",
            ["p.yaml:2:11: rules[0].deny: it has to be text; put quotes around what YAML reads as another type"],
        ),
        (
            "rules:\n  - {allow: x, effect: reed}",
            ["p.yaml:2:24: rules[0].effect: it has to be 'read', 'idempotent', 'verifiable' or 'unsafe'"],
        ),
        (
            "rules:\n  - {deny: x, terms: {}}",
            ["p.yaml:2:22: rules[0].terms: only an `ask` rule has terms, and the verdict of this one is deny"],
        ),
        ("rules: []\nrules: []", ["p.yaml:2:1: rules: the field is repeated; the first one is on line 1"]),
        (
            "terms: {expires_after: 7x}",
            ["p.yaml:1:24: terms.expires_after: '7x' is not a duration; write 90 (seconds), 30s, 15m, 4h, 7d or 3w"],
        ),
        ("approvers: [{role: []}]", None),
        ("approvers: [{name: a b}]", None),
        ("gateways: [{name: a, keys: []}]", None),
        ("rules: !!python/object:os.system []", None),
        ("terms: &t {by: *t}", None),
        ('terms: {quorum: "\\UFFFFFFFF"}', None),
        ("rules: [" * 500, None),
        ("rules: []\n---\nrules: []", None),
        ("rules: []\x00", None),
        ("terms: {quorum: 1e999}", None),
        ("terms: {quorum: " + "9" * 6_000 + "}", None),
        ("terms: {remind_every: .nan}", None),
        ("terms: {remind_every: -5}", None),
    ],
)
def test_a_problem_is_reported_with_its_location(text: str | bytes, lines: list[str] | None) -> None:
    """The error gives file, line, column, field and remedy; YAML's and pydantic's own messages vary."""
    reported = problems(text)
    if lines is not None:
        assert reported == lines
    assert all(line.startswith("p.yaml") for line in reported)


def test_all_problems_are_reported_at_once() -> None:
    """A file with several problems gives one error that lists them all."""
    text = (
        "approvers:\n  - {name: alice, keys: [ed25519:xx]}\n  - {nam: bob}\n"
        "rules:\n  - {ask: pay, when: 'args.cents > ('}\n  - {deny: x, efect: read}\n"
        "terms: {quorum: 0}\n"
    )
    places = [line.split(" ")[:2] for line in problems(text)]
    assert places == [
        ["p.yaml:2:26:", "approvers[0].keys[0]:"],
        ["p.yaml:3:5:", "approvers[1].name:"],
        ["p.yaml:3:6:", "approvers[1].nam:"],
        ["p.yaml:5:22:", "rules[0].when:"],
        ["p.yaml:6:15:", "rules[1].efect:"],
        ["p.yaml:7:17:", "terms.quorum:"],
    ]


def test_unknown_names_are_reported_with_their_location() -> None:
    """Every list of names is checked, and the error suggests a similar name."""
    text = (
        "approvers: [{name: alice, roles: [finance]}]\n"
        "terms: {by: [finanse], veto: [bob], escalate: [{after: 1d, by: [alic]}]}\n"
        "rules: [{ask: pay, terms: {quorum: 2}}]\n"
    )
    assert problems(text) == [
        "p.yaml:2:14: terms.by[0]: there is no approver or role 'finanse'; did you mean finance?",
        "p.yaml:2:31: terms.veto[0]: there is no approver or role 'bob'; known are alice, finance",
        "p.yaml:2:65: terms.escalate[0].by[0]: there is no approver or role 'alic'; did you mean alice?",
        "p.yaml:3:36: rules[0].terms.quorum: the quorum is 2, but only 1 may decide",
    ]


def test_the_policys_own_checks_are_reported_with_a_location() -> None:
    """The reader of the file reports everything that `Policy` rejects, with a source location."""
    assert problems("approvers: [{name: a}, {name: a}]") == ["p.yaml:1:12: approvers: a is there twice"]
    assert problems("rules: []\nsignatures: required") == [
        "p.yaml:2:13: signatures: they are required, but no approver has a key"
    ]


def test_nested_aliases_are_rejected() -> None:
    """A few lines whose aliases stand for a billion values are rejected before expansion."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert any("100,000 values" in line for line in problems("\n".join(lines)))


def test_a_files_size_is_limited() -> None:
    """A file is limited to a megabyte and a condition to some thousand characters; much longer ones could crash the
    process.
    """
    assert problems(b"#" * (MAX_BYTES + 1)) == [f"p.yaml: the file has more than {MAX_BYTES:,} bytes"]
    long = "1" + "+1" * CONDITION_CHARS
    assert "longer than 4,000 characters" in problems(f"rules: [{{ask: x, when: '{long} > 0'}}]")[0]


def test_a_missing_file_is_a_policy_error(tmp_path: Path) -> None:
    """Everything that makes a policy unusable raises the same type of error."""
    with pytest.raises(PolicyError, match="No such file"):
        load_policy(tmp_path / "policy.yaml")
    with pytest.raises(PolicyError, match="directory"):
        load_policy(tmp_path)


_WORDS = ["rules", "terms", "approvers", "by", "when", "ask", "pay", "7d", "1", ".inf", "null", "<<", "0x", "1:30", "~"]
_SIGNS = [*"|>?:-,{}[]\"'*@`#\n", " ", "  ", "&a", "*a", "!!int", "!x", "%YAML 9.9", "---", "...", "2026-01-01"]
_ODD = ["\\ud800", "\\U00110000", "\x85", "\u2028", "\ufeff"]
_PIECES = st.sampled_from([*_WORDS, *_SIGNS, *_ODD])
_FILES = (
    st.binary(max_size=80)
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(_PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode())
)


@given(_FILES)
@example(b'"\\UFFFFFFFF"')
@example(b"? [a]: b")
@example(b"{? {a: b} : c}")
def test_any_file_gives_a_policy_or_a_policy_error(data: bytes) -> None:
    """Any bytes give a policy or a `PolicyError` that names the fault."""
    with suppress(PolicyError):
        assert isinstance(read(data), Policy)


@pytest.mark.parametrize("name", ["production", "development"])
def test_the_examples_are_valid_policies(name: str) -> None:
    """Every example can be copied and used as it is."""
    assert load_policy(EXAMPLES / f"{name}.yaml").rules


def test_the_example_for_production_requires_signatures_and_two_people() -> None:
    """It has signed decisions, a quorum for irreversible effects, and an escalation for undecided requests."""
    policy = load_policy(EXAMPLES / "production.yaml")
    verdict = evaluate(policy, ToolUse(tool="pay", effect=Effect.UNSAFE, arguments={"cents": 100_001}))
    assert policy.signatures == "required"
    assert (verdict.verdict, verdict.terms.quorum, verdict.terms.requester_may_decide) == ("ask", 2, False)
    assert policy.terms.escalate


@pytest.mark.parametrize("name", ["production", "development"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remember_always", {"text": "x", "scope": "global"}),
        ("remember_always", {"text": "x", "scope": "agent"}),
        ("learn_strategy", {"title": "x", "text": "y"}),
        ("remember", {"text": "x", "scope": "global"}),
        ("forget", {"id": "m-1"}),
    ],
)
def test_the_examples_ask_before_later_runs_are_instructed(name: str, tool: str, arguments: dict[str, str]) -> None:
    """No LLM changes the instructions of later runs or other agents unasked, although these tools are idempotent."""
    use = ToolUse(tool=tool, effect=Effect.IDEMPOTENT, arguments=arguments)
    assert evaluate(load_policy(EXAMPLES / f"{name}.yaml"), use).verdict == "ask"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("15m", 900), ("4h", 14_400), ("7d", 604_800), ("1.5h", 5_400)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    """A duration without a unit is in seconds."""
    assert read_seconds(text) == seconds
    assert read_seconds(span_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1h", "1y", "1h30m", "٣d", "1e9"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    """No value is guessed for an invalid duration."""
    with pytest.raises(ValueError, match="not a duration"):
        read_seconds(text)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1h30m", "'1h30m' has two units; write one: 90m"),
        ("1h 30", "'1h 30' has two units; write one: 90m"),
        ("1:30", "YAML reads 1:30 as a number in base 60"),
        ("1:30:00.5", "in base 60"),
        ('"1:30"', "is not a duration"),
        ("010", "YAML reads 010 as an octal number"),
        ("-010", "as an octal number"),
        ("yes", "it has to be a number; YAML reads yes, no, on and off as true and false"),
    ],
)
def test_a_duration_that_yaml_or_people_misread_is_rejected(written: str, words: str) -> None:
    """Values are never silently misread: YAML 1.1 has numbers in base 60 and 8, and words for true and false."""
    (reported,) = problems(f"terms: {{expires_after: {written}}}")
    assert reported.startswith("p.yaml:1:24: terms.expires_after: ")
    assert words in reported


@pytest.mark.parametrize("written", ["quorum: yes", "quorum: 02"])
def test_a_number_of_people_is_not_misread(written: str) -> None:
    """`yes` is not one person."""
    assert len(problems(f"terms: {{{written}}}")) == 1


def test_problems_of_people_are_reported_beside_invalid_fields() -> None:
    """A misspelt field does not hide duplicate or unknown names, or quorums that cannot be reached."""
    text = """
approvers:
  - {name: alice, roles: [finance], keyz: []}
  - {name: alice}
  - {name: finance}
terms: {by: [finanse], quorum: 3}
rules:
  - ask: pay
    terms: {by: [finance], quorum: 3, expires: 1d}
  - deny: x|y
signatures: required
extensions: {by: [bob]}
"""
    messages = [line.partition(": ")[2] for line in problems(text)]
    assert [line for line in messages if "no such field" not in line and "can match" not in line] == [
        "approvers: alice is there twice",
        "approvers: finance is a person and a role",
        "terms.by[0]: there is no approver or role 'finanse'; did you mean finance?",
        "rules[0].terms.quorum: the quorum is 3, but only 2 may decide",
        "signatures: they are required, but no approver has a key",
        "extensions.by[0]: there is no approver or role 'bob'; known are alice, finance",
    ]
    assert len(messages) == 9


@pytest.mark.parametrize(
    "approvers", ["[{name: [x]}]", "[{nme: bob}]", "[{name: alice, roles: finance}]", "alice", "[7]"]
)
def test_nothing_is_concluded_from_approvers_that_cannot_be_read(approvers: str) -> None:
    """A name may belong to an approver whose entry is invalid, so only the entry itself is reported."""
    assert not any("there is no approver" in line for line in problems(f"approvers: {approvers}\nterms: {{by: [bob]}}"))


def test_a_useless_pattern_has_its_source_location() -> None:
    """Each useless pattern of a file is reported with line and field."""
    assert problems('rules:\n  - deny: "pay "\n  - deny: a|b\n    agent: ""') == [
        "p.yaml:2:11: rules[0].deny: no tool can match the pattern 'pay ': a tool's name has up to 64 ASCII letters, "
        "digits, '_' or '-'; write 'pay'",
        "p.yaml:3:11: rules[1].deny: no tool can match the pattern 'a|b': a tool's name has up to 64 ASCII letters, "
        "digits, '_' or '-'; write a rule for each of 'a', 'b'",
        "p.yaml:4:12: rules[1].agent: no agent can match the pattern '': an agent's name has up to 64 ASCII letters, "
        "digits, '_', '-' or '.'; write '*' for every agent, or leave it out",
    ]


def test_a_policy_replaces_those_of_all_agents() -> None:
    """Rules can name agents; the original catalog is unchanged."""
    own = Policy(rules=(allow(),))
    catalog = Catalog(agents=[Agent(name="a", instructions="", policy=own), Agent(name="b", instructions="")])
    policy = Policy(rules=(deny(),))
    governed = catalog.governed_by(policy)
    assert [agent.policy for agent in governed.agents.values()] == [policy, policy]
    assert catalog.agents["a"].policy == own
