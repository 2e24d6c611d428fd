"""One message costs a worker or a gateway at most two seconds, for any content and any recipient.

The tables follow from the definitions of workflows and routes, so that a new signal, update or body is covered. Limits
count the CPU time of this thread, on a machine like the one that `docs/explanation/security.md` names. `make test` has
small messages with a lower limit, which a cost that grows with the square of the size exceeds as well.
"""

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload

from holdfast.core.base.models import argument_of
from holdfast.core.loop.state import LoopInput, LoopState
from holdfast.core.loop.steering import on_steering
from holdfast.core.mac.starts import Start, refusal
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES, leaves_no_trace
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.state.features import FEATURES
from holdfast.core.schedule.launching import ScheduledInput
from holdfast.core.temporal.converter import data_converter
from holdfast.gateway.bodies import Body, read_body
from holdfast.gateway.http.limits import BODY_BYTES
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.routes import acting as acting  # it defines bodies
from holdfast.gateway.routes import forks as forking  # noqa: F401  # it defines bodies
from holdfast.gateway.routes import schedules as scheduling  # noqa: F401  # it defines bodies
from holdfast.gateway.routes import starts as starting  # noqa: F401  # it defines bodies
from holdfast.workflows.agent_loop import AgentLoopWorkflow
from holdfast.workflows.agent_run import AgentRunWorkflow
from tests.support.examples import examples
from tests.support.hostile_payloads import UNREADABLE, as_json, laborious
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread

SECONDS = 2.0
"""The bound that security.md states, for a message of 2 MB."""

USUAL, LARGEST = 15_000, 1_900_000
SIZES = [USUAL, pytest.param(LARGEST, marks=pytest.mark.slow)]
BODIES = [USUAL, pytest.param(BODY_BYTES, marks=pytest.mark.slow)]
CONVERTER = data_converter.payload_converter


def bound(size: int) -> float:
    """Return the CPU seconds that a message of this size may take: a sixteenth of the bound if it is small."""
    return SECONDS / 16 if size == USUAL else SECONDS


def cost_of(act: Callable[[], Any], limit: float) -> float:
    """Return the CPU seconds of this thread that a call takes.

    If they exceed the limit, the call is repeated, and the cheapest one counts: a busy machine, or a collection of
    garbage that others have left, makes one call dear, but not three.
    """
    costs: list[float] = []
    while len(costs) < 3 and (not costs or costs[-1] > limit):
        began = time.thread_time()
        act()
        costs.append(time.thread_time() - began)
    return min(costs)


def names(kind: type, what: str) -> list[str]:
    """Return the signals or updates of a workflow, as the SDK finds them; a dynamic one as None."""
    definition = workflow._Definition.must_from_class(kind)
    return sorted(getattr(definition, what), key=str)


def waiting(features: int) -> Thread:
    """Return an in-memory thread with an open request."""
    thread = loaded_thread(agent_spec(), features=features)
    thread.reply(calls("pay"))
    return thread


def deliver(thread: Thread, name: str, payload: Payload) -> None:
    """Deliver a signal and an update of that name, as the workflow does."""
    sent = argument_of(CONVERTER.from_payloads([payload]))
    if not leaves_no_trace(thread.state, sent):
        thread.signal(name, sent)
    thread.run.refused(name, sent, at=thread.at)


def test_every_signal_and_update_is_in_the_table() -> None:
    """The names that the tests below send are those of the interface; others go through the dynamic handler."""
    own = set(names(AgentRunWorkflow, "signals")) - {None}
    assert own == {name for name, level in SIGNALS.items() if level == 0}
    assert set(names(AgentRunWorkflow, "updates")) == set(UPDATES)


@pytest.mark.parametrize("features", [FEATURES, pytest.param(0, marks=pytest.mark.extended)])
@pytest.mark.parametrize("name", sorted({*SIGNALS, *UPDATES, "no_such"}))
@pytest.mark.parametrize("size", SIZES)
def test_a_message_to_a_run_costs_little(size: int, name: str, features: int) -> None:
    """Each signal and update is accepted or rejected within the bound, at every feature level."""
    thread = waiting(features)
    for what, payload in (laborious(size) | UNREADABLE).items():
        if thread.state.moving:
            thread = waiting(features)
        taken = cost_of(partial(deliver, thread, name, payload), 2 * bound(size))  # a signal and an update
        assert taken <= 2 * bound(size), (what, taken)


@pytest.mark.parametrize("what", sorted({*names(AgentLoopWorkflow, "signals"), *names(AgentLoopWorkflow, "updates")}))
@pytest.mark.parametrize("size", SIZES)
def test_a_message_to_a_loop_costs_little(size: int, what: Any) -> None:
    """Each signal and update of a loop is accepted or rejected within the bound."""
    for words, payload in (laborious(size) | UNREADABLE).items():
        taken = cost_of(partial(steer, what, payload), bound(size))
        assert taken <= bound(size), (words, taken)


def steer(what: Any, payload: Payload) -> None:
    """Steer a loop with that message."""
    on_steering(LoopState(thread="t"), what, argument_of(CONVERTER.from_payloads([payload])), at=NOW)


def begin(kind: type[Start], payload: Payload) -> None:
    """Begin a workflow with that input, as the workflow does."""
    (given,) = CONVERTER.from_payloads([payload], [kind])
    if isinstance(given, RunInput):
        AgentRun(given, thread="t", run_id="r", first_run_id="r", at=NOW, started_at=NOW)
    else:
        refusal(given, first_run_id="r", started_at=NOW)


@pytest.mark.parametrize("kind", [RunInput, LoopInput, ScheduledInput])
@pytest.mark.parametrize("size", SIZES)
def test_a_plain_start_costs_little(size: int, kind: type[Start]) -> None:
    """A start is begun or rejected within the bound, with each field in turn as large as Temporal accepts."""
    for what, payload in laborious(size).items():
        taken = cost_of(partial(begin, kind, payload), bound(size))
        assert taken <= bound(size), (what, taken)
    marks = "a" + "\\u0301\\u0316" * (size // 12)
    for field in kind.model_fields:
        for value in (f'"{marks}"', f'"{"x" * size}"', "[" + ",".join(["[]"] * (size // 3)) + "]"):
            sent = as_json(f'{{"task":"t","{field}":{value}}}'.encode())
            taken = cost_of(partial(begin, kind, sent), bound(size))
            assert taken <= bound(size), (field, value[:20], taken)


def bodies(kind: type[Body] = Body) -> list[type[Body]]:
    """Return the bodies of all routes."""
    return [each for inner in kind.__subclasses__() for each in (inner, *bodies(inner))]


@pytest.mark.extended
@pytest.mark.parametrize("kind", bodies(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("size", BODIES)
def test_a_body_of_a_request_costs_little(size: int, kind: type[Body]) -> None:
    """Each body is read or rejected within the bound, the longest one, too."""

    def read(body: bytes) -> None:
        with suppress(HTTPProblem):
            read_body(body, kind)

    values = ['"a' + "\\u0301\\u0316" * (size // 12), "[" + "[]," * (size // 3)]
    for field in (*kind.model_fields, "other"):
        for value in values:
            body = f'{{"{field}":{value}{"]" if value[0] == "[" else chr(34)}}}'.replace(",]", "]").encode()
            assert cost_of(partial(read, body), bound(size)) <= bound(size), (field, value[:20])
    for what, payload in laborious(size).items():
        assert cost_of(partial(read, payload.data), bound(size)) <= bound(size), what


def shape(rng: random.Random, room: list[int], depth: int = 0) -> Any:
    """Return a random JSON value of any shape, with about as many characters as there is room for."""
    kind = rng.random()
    if kind < 0.6 or depth > 120:
        scalar = rng.choice(SCALARS)
        room[0] -= len(scalar) if isinstance(scalar, str) else 9
        return scalar if room[0] > 0 else None
    inner = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5, 1_000))):
        if room[0] > 0:
            inner.append(shape(rng, room, depth + 1))
    return inner if kind < 0.8 else {rng.choice((*FIELDS, *TEXTS)): each for each in inner}


# fmt: off
FIELDS = (
    "by", "request", "reason", "decision", "digest", "arguments", "result", "remember", "to", "seconds", "until",
    "message", "when_busy", "id", "event", "data", "call", "kind", "text", "usd", "steps", "tokens", "constraint",
    "remembered", "delegated_to", "thread", "signature", "keep",
)
# fmt: on


TEXTS = (
    "",
    "1",
    "alice",
    "x" * 30_000,
    "a" + "\u0301" * 20_000,
    "\x00" * 2_000,
    "ж" * 5_000,
    "2026-01-01",
    "[" * 9_000,
)
SCALARS = (None, True, 0, -1, 10**18, 10**3_000, 1e308, 5e-324, float("nan"), *TEXTS)


def test_after_any_number_of_messages_the_right_approval_counts() -> None:
    """Messages of all shapes and sizes leave the run small and its request open; none exceeds the bound."""
    rng = random.Random(7)
    thread = waiting(FEATURES)
    messages = sorted({*SIGNALS, *UPDATES, "no_such"} - {"move"})
    for number in range(examples(100, 10_000)):
        name = rng.choice(messages)
        room = [rng.choice((100, 10_000, 300_000))]
        whole = {rng.choice(FIELDS): shape(rng, room) for _ in range(rng.randrange(6))}
        sent = whole if rng.random() < 0.8 else shape(rng, room)
        payload = as_json(json.dumps(sent, ensure_ascii=False).encode())

        assert cost_of(partial(deliver, thread, name, payload), SECONDS) <= SECONDS, (number, name)
        if number % 50 == 0:
            thread.advance(seconds=1)
    assert "1" in {request.id for request in thread.state.authority.requests}
    assert thread.decide("1", by="alice") == "accepted"
