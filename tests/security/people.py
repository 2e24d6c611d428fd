"""People with keys, a clerk who pays, and what an attacker needs to try it: shared by the tests of authority."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle

from holdfast import Agent, Approver, Catalog, Policy, ToolContext, tool
from holdfast.authority.follow_ups import Message
from holdfast.authority.signatures import encode_key, public_key, sign
from holdfast.authority.statements import AuthorityDelegation, Decision, Revocation, Signed
from tests.rig import Rig, answer_of, eventually

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
    """Pay, by a line in a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{cents}\n")
    return f"paid {cents}"


def clerk(policy: Policy) -> Catalog:
    """A clerk who pays under that policy."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=policy)], tools=[pay])


def payments(rig: Rig) -> list[int]:
    """What was paid, in order."""
    paid = rig.workspace / "paid"
    return [int(line) for line in paid.read_text().splitlines()] if paid.exists() else []


def signed(kind: type[Signed], thread: str, **said: Any) -> dict[str, Any]:
    """A statement with the signature of who says it, or of the owner of `key`."""
    key = said.pop("key", None) or KEYS[said["by"]]
    return {**said, "signature": sign(key, kind.model_validate(said).signed_bytes(thread))}


def decision(thread: str, request: dict[str, Any], **said: Any) -> dict[str, Any]:
    """A signed decision on a request: an approval, if nothing else is said."""
    seen = {"decision": "approve", "request": request["request"], "digest": request["digest"]}
    return signed(Decision, thread, **{**seen, **said})


def delegation(thread: str, by: str, to: str, **until: float) -> dict[str, Any]:
    """A signed delegation, for an hour if nothing else is said."""
    end = datetime.now(UTC) + timedelta(**(until or {"hours": 1}))
    return signed(AuthorityDelegation, thread, by=by, to=to, until=end.isoformat())


def revocation(thread: str, by: str, **what: Any) -> dict[str, Any]:
    """A signed revocation."""
    return signed(Revocation, thread, by=by, **what)


def message(thread: str, text: str, **said: Any) -> dict[str, Any]:
    """A signed message."""
    until = datetime.now(UTC) + timedelta(hours=1)
    return signed(Message, thread, **{"message": text, "id": text, "until": until.isoformat(), **said})


async def answer(run: WorkflowHandle[Any, Any], update: str, payload: Any) -> str:
    """What becomes of an update."""
    told: dict[str, str] = await answer_of(run.execute_update(update, payload))
    return told["outcome"]


async def pending(run: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
    """The open requests, when there are so many."""
    requests: list[dict[str, Any]] = await eventually(
        lambda: run.query("pending_approvals"), lambda requests: len(requests) == count
    )
    return requests


async def request_of(run: WorkflowHandle[Any, Any], name: str = "") -> dict[str, Any]:
    """The open request, or the one of that name."""
    requests = await eventually(
        lambda: run.query("pending_approvals"),
        lambda requests: any(not name or each["request"] == name for each in requests),
    )
    found: dict[str, Any] = next(each for each in requests if not name or each["request"] == name)
    return found
