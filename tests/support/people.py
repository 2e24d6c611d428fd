"""People with keys, a clerk who pays, and an attacker's tools: shared by the tests of authority."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle

from holdfast import Agent, Approver, Catalog, Policy, ToolContext, tool
from holdfast.core.authority.interventions import Message, Refinement
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision, Lift, Revocation, Signed
from holdfast.core.run.inputs.interventions import INTERVENTIONS
from tests.support.rig import Rig, answer_of, eventually

KEYS = {
    name: encode_key(bytes([number]) * 32)
    for number, name in enumerate(("alice", "bob", "carol", "dave", "mallory"), start=1)
}
PEOPLE = (
    Approver(name="alice", roles=("finance",), keys=(public_key(KEYS["alice"]),)),
    Approver(name="bob", roles=("finance",), keys=(public_key(KEYS["bob"]),)),
    Approver(name="carol", keys=(public_key(KEYS["carol"]),)),
    Approver(name="dave", roles=("head",), keys=(public_key(KEYS["dave"]),)),
)

SignedT = TypeVar("SignedT", bound=Signed)


@tool(effect="unsafe")
def pay(cents: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{cents}\n")
    return f"paid {cents}"


def clerk(policy: Policy) -> Catalog:
    """Return a clerk who pays under that policy."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=policy, tools=[pay])])


def payments(rig: Rig) -> list[int]:
    """Return the payments, in order."""
    paid = rig.workspace / "paid"
    return [int(line) for line in paid.read_text().splitlines()] if paid.exists() else []


def signed(kind: type[Signed], thread: str, /, **said: Any) -> dict[str, Any]:
    """Return a statement signed by the person who makes it, or by the owner of `key`."""
    key = said.pop("key", None) or KEYS[said["by"]]
    return {**said, "signature": sign(key, kind.model_validate(said).signed_bytes(thread))}


def decision(thread: str, request: dict[str, Any], **said: Any) -> dict[str, Any]:
    """Return a signed decision on a request; by default an approval."""
    seen = {"decision": "approve", "request": request["request"], "digest": request["digest"]}
    return signed(Decision, thread, **{**seen, **said})


def delegation(thread: str, by: str, to: str, **until: float) -> dict[str, Any]:
    """Return a signed delegation of approval authority; by default for an hour."""
    end = datetime.now(UTC) + timedelta(**(until or {"hours": 1}))
    return signed(AuthorityDelegation, thread, by=by, to=to, until=end.isoformat())


def revocation(thread: str, by: str, **what: Any) -> dict[str, Any]:
    """Return a signed revocation."""
    return signed(Revocation, thread, by=by, **what)


def lift(thread: str, by: str, constraint: int, **more: Any) -> dict[str, Any]:
    """Return a signed removal of a constraint."""
    return signed(Lift, thread, by=by, constraint=constraint, **more)


def refinement(thread: str, text: str, **said: Any) -> dict[str, Any]:
    """Return a signed refinement of the task; by default one that narrows it."""
    until = datetime.now(UTC) + timedelta(hours=1)
    return signed(
        Refinement, thread, **{"kind": "narrow", "text": text, "id": text, "until": until.isoformat(), **said}
    )


def message(thread: str, text: str, **said: Any) -> dict[str, Any]:
    """Return a signed message."""
    until = datetime.now(UTC) + timedelta(hours=1)
    return signed(Message, thread, **{"message": text, "id": text, "until": until.isoformat(), **said})


async def answer(run: WorkflowHandle[Any, Any], update: str, payload: Any) -> str:
    """Send an update and return its outcome."""
    reply: dict[str, str] = await answer_of(run.execute_update(update, payload))
    return reply["outcome"]


async def pending(run: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
    """Wait for that many open requests, and return them."""
    requests: list[dict[str, Any]] = await eventually(
        lambda: run.query("pending_approvals"), lambda requests: len(requests) == count
    )
    return requests


async def request_of(run: WorkflowHandle[Any, Any], name: str = "") -> dict[str, Any]:
    """Return the open request, or the one with that name."""
    requests = await eventually(
        lambda: run.query("pending_approvals"),
        lambda requests: any(not name or each["request"] == name for each in requests),
    )
    match: dict[str, Any] = next(each for each in requests if not name or each["request"] == name)
    return match


def steering(thread: str, state: dict[str, Any], name: str, by: str, **said: Any) -> dict[str, Any]:
    """Return a signed `pause`, `resume`, `retry` or `move`; `state` is the view of the run that its sender saw."""
    return signed(INTERVENTIONS[name].statement or Signed, thread, **{**state["steering"], "by": by, **said})
