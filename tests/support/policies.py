"""Strategies for policies, calls and conditions of any kind."""

from typing import Any

from hypothesis import strategies as st

from holdfast.core.authority.policy import Approver, Escalation, Gateway, Policy, Rule, Terms, ToolUse, VerdictKind
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.tools.effects import Effect

KEYS = [public_key(encode_key(bytes([number]) * 32)) for number in range(4)]
PEOPLE = ["alice", "bob", "carol"]
ROLES = ["finance", "head"]

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=20)
SECONDS = st.integers(1, 86_400 * 365).map(float) | st.floats(0.5, 1e6)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = JSON | st.dictionaries(st.sampled_from(["a", "b", "path", "cents"]), JSON, max_size=4)

_ARGUMENTS = ["args", "args.a", "args.b", "args.cents", "args.path", "args['a']", "args.a[0]"]
_OTHERS = ["tool", "effect", "agent", "depth", "workspace", "true", "null", "'x'", "b'x'", "[1, 'a']", "{'a': 1}"]
_NUMBERS = ["0", "-1", "2.5", "3u", "1e308", "9223372036854775807", "(-9223372036854775807 - 1)", "duration('1h')"]
_VALUES = st.sampled_from([*_ARGUMENTS, *_OTHERS, *_NUMBERS, "timestamp('2026-01-01T00:00:00Z')"])
_TWO = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "in"]


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(_TWO), inner),
        st.builds("!({})".format, inner),
        st.builds("-({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["size", "int", "uint", "double", "duration", "timestamp"]), inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("has(args.{})".format, st.sampled_from("abc")),
        st.builds("({}).{}(x, {})".format, inner, st.sampled_from(["all", "exists", "map", "filter"]), inner),
        st.builds("({}).{}({})".format, inner, st.sampled_from(["startsWith", "contains", "matches"]), inner),
    )


CONDITIONS = st.recursive(_VALUES, _larger, max_leaves=6)
"""CEL expressions that are well-formed but seldom well-typed."""

USES = st.builds(
    ToolUse,
    tool=st.sampled_from(["read_file", "pay", "wipe"]),
    effect=st.sampled_from(list(Effect)),
    arguments=ARGUMENTS,
    agent=st.sampled_from(["", "releaser"]),
    depth=st.integers(0, 3),
    workspace=TEXT,
)

_NAMES = st.lists(st.sampled_from([*PEOPLE, *ROLES]), max_size=3, unique=True).map(tuple)
_STEPS = st.lists(
    st.builds(Escalation, after=SECONDS, by=_NAMES.filter(bool)), max_size=2, unique_by=lambda step: step.after
).map(lambda steps: tuple(sorted(steps, key=lambda step: step.after)))
_ASKED: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"by": _NAMES.filter(bool), "escalate": _STEPS}
) | st.just({})
TERMS = st.builds(
    lambda asked, **more: Terms(**asked, **more),
    _ASKED,
    veto=_NAMES,
    requester_may_decide=st.booleans(),
    expires_after=st.none() | SECONDS,
    on_expiry=st.sampled_from(["deny", "approve"]),
    remind_every=st.none() | SECONDS,
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Draw a rule of any kind."""
    verdict: VerdictKind = draw(st.sampled_from(["allow", "ask", "deny"]))
    return Rule(
        verdict=verdict,
        tool=draw(st.sampled_from(["*", "read_*", "pay", "p?y"])),
        effect=draw(st.none() | st.sampled_from(list(Effect))),
        agent=draw(st.sampled_from(["*", "rel*"])),
        depth=draw(st.integers(0, 2)),
        when=draw(st.sampled_from(["", "", "args.cents > 100", "has(args.a)", "tool.startsWith('p')"])),
        reason=draw(TEXT),
        terms=draw(st.none() | TERMS) if verdict == "ask" else None,
    )


POLICIES = st.builds(
    Policy,
    rules=st.lists(rules(), max_size=5).map(tuple),
    approvers=st.just(
        (
            Approver(name="alice", roles=("finance",), keys=(KEYS[0], KEYS[1])),
            Approver(name="bob", roles=("finance", "head")),
            Approver(name="carol"),
        )
    ),
    gateways=st.sampled_from([(), (Gateway(name="hooks", keys=(KEYS[2],)),)]),
    signatures=st.sampled_from(["optional", "required"]),
    terms=TERMS,
)
