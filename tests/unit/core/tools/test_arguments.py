"""An LLM's arguments are parsed once: the policy judges exactly what the function receives, or nothing runs."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from pprint import pformat
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    Json,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    computed_field,
    model_validator,
)

from holdfast import Agent, Catalog, Effect, Limits, Tool, WorkspacePath, tool
from holdfast.activities.llm_calls.llm_replies import read_reply
from holdfast.core.authority.policy import Policy, allow, deny
from holdfast.core.base.canonical import exact_json, parsed
from holdfast.core.log.events import ToolCallFinished, ToolCallRequested, VerdictGiven
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.decide.replies import on_reply
from holdfast.core.tools.arguments import ArgumentsInvalid, canonical_arguments
from holdfast.core.tools.numbers import with_floats
from holdfast.errors import CatalogError, ToolSignatureError
from tests.support.examples import examples
from tests.support.runs import ADAPTER, NOW, agent_spec, calls, loaded_thread, tool_spec


class Colour(Enum):
    """Names for texts."""

    RED = "red"
    ONE = 1


class Level(IntEnum):
    """Names for numbers."""

    LOW = 1
    HIGH = 2


class Item(BaseModel):
    """A nested model."""

    name: str
    count: int = 1
    tags: set[str] = set()
    when: datetime | None = None


class Order(BaseModel, extra="allow"):
    """A model of models that accepts extra fields."""

    items: list[Item] = []
    by_name: dict[str, float] = {}
    first: Item | None = Field(default=None, alias="First")

    @computed_field
    def total(self) -> int:
        """Return a value that is no argument, though pydantic writes it."""
        return sum(item.count for item in self.items)


@dataclass
class Point:
    """A dataclass."""

    x: float
    y: float = 1


TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "literal": Literal["yes", 1, True],
    "enum": Colour,
    "int enum": Level,
    "optional": bool | None,
    "union": int | str | bool,
    "list": list[int],
    "tuple": tuple[int, bool],
    "set": set[str],
    "dict": dict[str, int],
    "keyed": dict[int, bool],
    "nested": Order,
    "dataclass": Point,
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "decimal": Decimal,
    "path": Path,
    "workspace path": WorkspacePath,
    "uuid": UUID,
    "bytes": bytes,
    "any": Any,
    "json": Json[list[int]],
    "constrained int": Annotated[int, Field(ge=0, le=9, strict=True)],
    "constrained str": Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=5)],
}


def tool_with(kind: Any) -> Tool:
    """Return a tool that takes one argument of that type, and one more with a default."""

    def act(x, force: bool = False):  # type: ignore[no-untyped-def]
        """Act."""

    act.__annotations__ = {"x": kind, "force": bool}
    return tool(effect="unsafe")(act)


TOOLS = {name: tool_with(kind) for name, kind in TYPES.items()}

SCALARS = [
    *(
        "true",
        "false",
        "null",
        "0",
        "1",
        "-1",
        "2",
        "1.0",
        "-0",
        "-0.0",
        "0.1",
        "1e3",
        "1E400",
        "-1e999",
        "1e-400",
        "1e16",
    ),
    *("NaN", "Infinity", "-Infinity", "9007199254740993", "9" * 20, "9" * 400, "9" * 5_000, "1.00000000000000000001"),
    *('"yes"', '"true"', '"True"', '"on"', '"1"', '"0"', '"1.0"', '"5"', '" 5 "', '"1e3"', '"1_000"', '"nan"', '"inf"'),
    *('""', '"red"', '"a/../b"', '"//x/./y/"', '"x\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u212b"', '"[1,2]"'),
    *('"2026-01-02"', '"2026-01-02T03:04:05Z"', '"2026-01-02T03:04:05.123456789+05:30"', "1767322800", "1767322800000"),
    *(
        '"03:04:05"',
        '"P1DT2H"',
        '"-P1DT0.5S"',
        '"1.10"',
        '"1E+2"',
        '"12345678-1234-5678-1234-567812345678"',
        "01",
        "{",
        "]",
    ),
]
"""Pieces of JSON and of invalid JSON."""

KEYS = st.sampled_from(
    ['"a"', '"b"', '"1"', '"01"', '"1.0"', '"name"', '"count"', '"tags"', '"items"', '"First"', '"x"', '"y"']
)


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"  # keys may be duplicated


PIECES = st.recursive(
    st.sampled_from(SCALARS) | st.text(max_size=6).map(json.dumps) | (st.integers() | st.floats()).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda values: f"[{', '.join(values)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=4).map(_object)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=examples(5, 35))
@given(pieces=st.lists(PIECES, min_size=10, max_size=10))
def test_the_policy_sees_what_the_function_receives(kind: str, pieces: list[str]) -> None:
    """In thousands of coercions, each is rejected, or the judged value is identical when it is parsed again."""
    act, plain = TOOLS[kind], TypeAdapter[Any](TYPES[kind])
    for piece in pieces:
        try:
            read = act.read(f'{{"x": {piece}}}')
        except ArgumentsInvalid:
            continue
        judged = parsed(read.text)
        assert judged.keys() == {"x", "force"}
        assert exact_json(judged) == read.text
        again = act.read(read.text)
        assert again.text == read.text
        received = again.values["x"]
        first = plain.dump_python(read.values["x"], warnings=False)
        assert pformat(plain.dump_python(received, warnings=False), width=1) == pformat(first, width=1), (
            "types included"
        )
        assert type(received) is type(read.values["x"])
        assert received == read.values["x"]
        if kind not in ("json", "any"):
            assert plain.validate_json(exact_json(judged["x"])) == received
        if isinstance(received, bool | int | float | str | None):
            native = received.value if isinstance(received, Enum) else received
            seen = with_floats(judged, act.spec.parameters)["x"]
            assert seen == native
            assert isinstance(seen, bool) == isinstance(native, bool)
            assert kind not in ("float", "int") or type(seen) is type(native)


def test_the_types_make_ten_thousand_coercions() -> None:
    """As a control, the property above is tested that often."""
    assert len(TYPES) * 35 * 10 >= 10_000


@settings(max_examples=examples(25, 200))
@given(name=st.sampled_from(["bool", "int", "nested", "any", "set"]), piece=PIECES)
def test_the_recorded_call_has_the_judged_arguments(name: str, piece: str) -> None:
    """From the provider's bytes to the event, the call has the parsed arguments; the message stays verbatim."""
    act = TOOLS[name]
    written = f'{{"x": {piece}}}'
    call = {"id": "a", "function": {"name": act.spec.name, "arguments": written}}
    body = json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()
    policy = Policy(rules=(deny(when="args.force"), allow()))
    spec = agent_spec(tools=(act.spec,), policy=policy)
    reply = read_reply(body, adapter=ADAPTER, spec=spec, tools={act.spec.name: act}, step_id="s")
    events = on_reply(loaded_thread(spec).state, reply, shown=1, at=NOW)
    requested = next(event for event in events if isinstance(event, ToolCallRequested))
    assert reply.message is not None
    assert reply.message.tool_calls[0].arguments == written.encode("utf-8", "replace").decode()
    if any(isinstance(event, VerdictGiven) for event in events):
        assert requested.call.arguments == act.read(written).text
    else:
        assert [event.status for event in events if isinstance(event, ToolCallFinished)] == ["invalid"]


def deploy(target: str, force: bool = False, times: int = 1) -> None:
    """Deploy."""


DEPLOY = tool(effect="unsafe")(deploy)


@pytest.mark.parametrize("written", ["true", "1", "1.0", '"yes"', '"true"', '"TRUE"', '"on"', '"1"', '"y"', '"t"'])
def test_every_spelling_of_true_is_judged_as_true(written: str) -> None:
    """A condition sees every value that pydantic accepts as true as true."""
    text = DEPLOY.read(f'{{"target": "x", "force": {written}}}').text
    assert text == '{"force":true,"target":"x","times":1}'


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"target": "x", "force": false, "force": true}', '{"force":true,"target":"x","times":1}'),
        ('{"target": "x", "\\u0066orce": true}', '{"force":true,"target":"x","times":1}'),
        (' \n{"target":"x"} ', '{"force":false,"target":"x","times":1}'),
        ('{"target": "\\ud83d\\ude00", "times": "5"}', '{"force":false,"target":"😀","times":5}'),
        ('{"target": "x", "times": 1e3}', '{"force":false,"target":"x","times":1000}'),
        (f'{{"target": "x", "times": {"9" * 400}}}', f'{{"force":false,"target":"x","times":{"9" * 400}}}'),
    ],
    ids=["twice", "escaped", "blank", "pair", "lenient", "huge"],
)
def test_odd_json_has_one_meaning(written: str, text: str) -> None:
    """The last of duplicate keys counts, for policy and function alike; texts and numbers keep their meaning."""
    assert DEPLOY.read(written).text == text


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('{"target": "\\ud800"}', "Invalid JSON"),
        (f'{{"target": "x", "times": {"9" * 5_000}}}', "Invalid JSON"),
        ('{"target": "x", "times": 1e400}', "times: "),
        ('{"target": "x", "times": NaN}', "times: "),
        ('{"target": ' + "[" * 5_000, "Invalid JSON"),
        ("", "target: Field required"),
        ("null", "should be an object"),
        ('{"target": "x", "Force": true}', "Force: Extra inputs"),
    ],
    ids=["surrogate", "digits", "infinite", "nan", "deep", "empty", "null", "case"],
)
def test_invalid_values_are_rejected(written: str, words: str) -> None:
    """The LLM gets an error for lone surrogates, thousands of digits or brackets, NaN and unknown names."""
    with pytest.raises(ArgumentsInvalid, match=words):
        DEPLOY.read(written)


class Careless(BaseModel):
    """A model whose validator expects an object with that key."""

    amount: int

    @model_validator(mode="before")
    @classmethod
    def in_cents(cls, given: Any) -> Any:
        """Take the amount in cents."""
        return {"amount": given["amount"] * 100}


@pytest.mark.parametrize(
    ("written", "words"), [("7", "TypeError"), ("{}", "KeyError: 'amount'")], ids=["another type", "no key"]
)
def test_a_validator_may_raise_anything(written: str, words: str) -> None:
    """The LLM reads the error. If it were raised, the LLM call would be made, and paid for, again and again."""

    @tool(effect="read")
    def charge(order: Careless) -> str:
        """Charge."""
        return str(order)

    with pytest.raises(ArgumentsInvalid, match=words):
        charge.read(f'{{"order": {written}}}')


def test_a_worker_without_memory_says_nothing_of_the_arguments() -> None:
    """The attempt fails, and another worker may read the arguments."""

    def exhaust(_: int) -> int:
        raise MemoryError

    @tool(effect="read")
    def fill(amount: Annotated[int, AfterValidator(exhaust)]) -> str:
        """Fill."""
        return str(amount)

    with pytest.raises(MemoryError):
        fill.read('{"amount": 7}')


@pytest.mark.parametrize("piece", ["1e400", "NaN", "-Infinity", "[" * 120 + "]" * 120])
@pytest.mark.parametrize("kind", ["any", "float", "decimal", "nested"])
def test_numbers_outside_json_and_deep_nesting_are_rejected(kind: str, piece: str) -> None:
    """They are rejected even if a type accepts them: policies, people and the log could not read them."""
    with pytest.raises(ArgumentsInvalid):
        TOOLS[kind].read(f'{{"x": {{"by_name": {{"a": {piece}}}, "more": {piece}}}}}')
    with pytest.raises(ArgumentsInvalid):
        TOOLS[kind].read(f'{{"x": {piece}}}')


def test_a_set_is_written_in_one_order() -> None:
    """Two workers write the same text, whichever order the set has in each process."""
    written = {TOOLS["set"].read(json.dumps({"x": names})).text for names in (["b", "a", "c"], ["c", "b", "a", "a"])}
    assert written == {'{"force":false,"x":["a","b","c"]}'}
    order = TOOLS["nested"].read('{"x": {"items": [{"name": "n", "tags": ["z", "y", "x"]}]}}').text
    assert json.loads(order)["x"]["items"][0]["tags"] == ["x", "y", "z"]


def lossy(x: Annotated[int, PlainSerializer(lambda value: value // 10 * 10)]) -> None:
    """Serialize with a loss."""


class Aliased(BaseModel):
    """A model that reads one name and writes another."""

    value: int = Field(default=0, validation_alias="in", serialization_alias="out")


def renamed(x: Aliased) -> None:
    """Read one name and write another."""


class Hidden(BaseModel):
    """A model that excludes a field from its output."""

    shown: int = 1
    hidden: int = Field(default=0, exclude=True)


def left_out(x: Hidden) -> None:
    """Serialize without a field."""


@pytest.mark.parametrize(("function", "value"), [(lossy, 15), (renamed, {"in": 5}), (left_out, {"hidden": 5})])
def test_a_value_that_does_not_survive_serialization_never_runs(function: Callable[..., Any], value: Any) -> None:
    """A policy would judge another value, so the message is for the tool's developer."""
    with pytest.raises(
        ArgumentsInvalid, match=r"x.* changes when it is written as JSON and read again.*the developer of the tool"
    ):
        tool(function).read(json.dumps({"x": value}))
    if function is lossy:
        assert tool(function).read('{"x": 20}').values == {"x": 20}


def secret(x: SecretStr) -> None:
    """Take a secret from an LLM."""


def nested_secret(x: list[dict[str, SecretStr]]) -> None:
    """Take secrets from an LLM."""


def once(x: Iterable[int]) -> None:
    """Take a value that can be read only once."""


def unfit(x: int = None) -> None:  # type: ignore[assignment]  # noqa: RUF013  # the point of the test
    """Have a default that is not of its type."""


def unfaithful(x: Annotated[int, PlainSerializer(str)] = 5, y: Aliased = Aliased(**{"in": 3})) -> None:  # noqa: B008
    """Have a default that serializes to another value."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (secret, r"is a secret .*secrets=…"),
        (nested_secret, r"is a secret"),
        (once, "iterated only once"),
        (unfit, "default does not fit .*x: Input should be a valid integer"),
        (unfaithful, "y.* changes when it is written"),
    ],
)
def test_a_parameter_that_cannot_be_judged_is_rejected_at_once(function: Callable[..., Any], words: str) -> None:
    """The error is raised where the tool is defined, not returned to an LLM."""
    with pytest.raises(ToolSignatureError, match=words):
        tool(function)


def test_defaults_are_of_their_types_and_in_the_schema() -> None:
    """`1` for a float is 1 in the schema, and 1.0 for the policy and in the function."""

    @tool(effect="read")
    def look(
        fresh: Annotated[UUID, Field(default_factory=uuid4)],
        at: float = 1,
        names: frozenset[str] = frozenset({"b", "a"}),
    ) -> None:
        """Look."""

    assert look.spec.defaults["at"] == 1
    assert look.spec.defaults.keys() == {"at", "names"}
    first = look.read("").text
    assert first.startswith('{"at":1,"fresh":"')
    assert repr(look.read("").values["at"]) == repr(with_floats(parsed(first), look.spec.parameters)["at"]) == "1.0"
    assert first.endswith('","names":["a","b"]}')
    assert look.read(first).text == first, "a drawn value stays the same"


def test_a_verifying_call_has_the_defaults_of_its_tool() -> None:
    """A verify tool is called in the form that every worker runs; all its arguments have defaults."""

    @tool(effect="read")
    def look(limit: float = 1, deep: bool = False) -> None:
        """Look."""

    @tool(effect="read")
    def drawn(at: Annotated[UUID, Field(default_factory=uuid4)]) -> None:
        """Look at a random thing each time."""

    Catalog(agents=[Agent(name="a", instructions="", verify=("look",), tools=[look])])
    with pytest.raises(CatalogError, match="verifies with 'drawn': it must be a read-only tool without arguments"):
        Catalog(agents=[Agent(name="a", instructions="", verify=("drawn",), tools=[drawn])])
    spec = agent_spec(
        tools=(look.spec, tool_spec("pay", Effect.UNSAFE)), verify=("look",), limits=Limits(stale_after=1)
    )
    thread = loaded_thread(spec)
    thread.reply(calls("pay"))
    thread.advance(hours=1)
    thread.decide("1")
    (order,) = [call.request for call in thread.waiting(ToolRequest) if isinstance(call, Call)]
    assert isinstance(order, ToolRequest)
    assert order.call.arguments == look.read("").text == '{"deep":false,"limit":1}'


@given(st.text() | PIECES)
@example("1E400")
def test_arguments_without_a_model_have_a_canonical_form(text: str) -> None:
    """For a tool of another worker's catalog: canonical JSON, which is stable; verbatim if it is not JSON."""
    once = canonical_arguments(text)
    assert canonical_arguments(once) == once
    assert once == text or exact_json(parsed(once)) == once
