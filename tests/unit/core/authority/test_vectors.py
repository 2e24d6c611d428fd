"""The test vectors in `docs/verify/vectors.json` match our code, so that others can implement the formats from them.

`python -m tests.unit.core.authority.test_vectors` writes the file.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.interventions import (
    Compaction,
    Extension,
    KeyRevocation,
    Message,
    Move,
    Pause,
    PolicyAdoption,
    Reclassification,
    Refinement,
    Resume,
    Retry,
)
from holdfast.core.authority.previews import CallPreview
from holdfast.core.authority.signatures import encode_key, is_signed, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision, Lift, Revocation, Signed
from holdfast.core.authority.votes import Seen
from holdfast.core.base.canonical import GENESIS, canonical, digest, exact_json
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.event_log import digest_after
from holdfast.core.mac.seals import call_name
from holdfast.core.tools.effects import effect_key
from holdfast.core.tools.typed_context import context_digest

FILE = Path(__file__).parents[4] / "docs" / "verify" / "vectors.json"
UNTIL = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PREVIEW = CallPreview(text="- 5\n+ 6 é", base="v1")
CONTEXT = {"customer": "4711", "limit": 5.0}
KEY = encode_key(bytes(range(32)))
VALUES: list[Any] = [
    *([600.0, 1e-05, 1e-06, 1e-07, 1e16, 5e-324, -0.0, 1e20, 1e21, 333333333.33333329], {"\U0001f600": 1, "\ufb33": 2}),
    *('\u20ac$\u000f\nA\'B"\\\\"/\u2028', {"b": [None, True, {}], "a": "é", "": -1, "10": 0.5, "9": 2**53 - 1}),
]
STATEMENTS: list[Signed] = [
    Decision(decision="approve", request="1", by="alice", digest="0" * 64, arguments={"cents": 5.0}, remember=True),
    AuthorityDelegation(by="alice", to="bob", until=UNTIL),
    Revocation(by="alice", delegated_to="bob"),
    Lift(by="alice", constraint=3),
    Refinement(by="dana", kind="narrow", text="Only the ä", id="r1", until=UNTIL),
    Message(by="dana", message="Publish ä 😀", id="m1", until=UNTIL),
    Extension(by="dana", usd=Decimal("1.50"), tokens=100_000, reason="ä", id="e1", until=UNTIL),
    KeyRevocation(by="alice", revoked=public_key(KEY), reason="a lost laptop"),
    Compaction(by="dana", summary="Step ä is done.", id="c1", until=UNTIL),
    Reclassification(by="alice", agent="auditor", budget=Amounts(usd="1.50"), reason="ä", id="r2", until=UNTIL),
    PolicyAdoption(policy="7" * 64, by="alice", reason="ä", id="p1", until=UNTIL),
    Pause(by="alice", run="r0", seen=2, until=UNTIL),
    Resume(by="alice", run="r0", seen=3),
    Retry(by="alice", run="r0", seen=4),
    Move(by="alice", run="r0", seen=5, reason="to the new cluster"),
]


def vectors() -> dict[str, Any]:
    """Compute the vectors."""
    arguments = exact_json({"id": 2**53 + 1, "amount": 600.0, "to": "é"})
    call = ToolCall(id="", name="pay", arguments=arguments).digest
    key = effect_key(thread="rel-1.2", first_run_id="r0", number=3, call_digest=call)
    seen = Seen(tool="pay", call_digest=call, spec_hash="5" * 64, effect_key=key, epoch=1)
    with_context = seen.model_copy(update={"context": context_digest(CONTEXT)})
    with_preview = seen.model_copy(update={"preview": PREVIEW.digest})
    head, chain = GENESIS, []
    for position, share in enumerate([600.0, 1e-07]):
        event = {"schema_version": 1, "type": "example", "position": position, "share": share}
        head = digest_after(head, event)
        chain.append(canonical({**event, "digest": head}).decode())
    return {
        "canonical": [{"json": json.dumps(value), "canonical": canonical(value).decode()} for value in VALUES],
        "chain": chain,
        "call": {"tool": "pay", "arguments": arguments, "digest": call},
        "effect_key": {"thread": "rel-1.2", "first_run_id": "r0", "number": 3, "call_digest": call, "key": key},
        "approval": {**seen.model_dump(exclude={"context", "preview"}), "digest": seen.digest},
        "approval_with_context": {
            **with_context.model_dump(exclude={"preview"}),
            "context": CONTEXT,
            "context_digest": with_context.context,
            "digest": with_context.digest,
        },
        "approval_with_preview": {
            **with_preview.model_dump(),
            "preview": PREVIEW.model_dump(),
            "preview_digest": with_preview.preview,
            "digest": with_preview.digest,
        },
        "agent": {"format": "agent/1", "example": {"name": "a"}, "digest": digest(["agent/1", {"name": "a"}])},
        "order": {"thread": "rel-1.2", "first_run_id": "r0", "number": 7, "name": _order()},
        "signed": {
            "private_key": KEY,
            "public_key": public_key(KEY),
            "statements": [_signed(each) for each in STATEMENTS],
        },
    }


def _order() -> str:
    return call_name(workflow_id="rel-1.2", first_run_id="r0", number=7)


def _signed(statement: Signed) -> dict[str, str]:
    message = statement.signed_bytes("rel-1.2")
    return {"format": statement.FORMAT, "bytes": message.decode(), "signature": sign(KEY, message)}


def test_the_vectors_are_what_our_code_computes() -> None:
    """A change of any format fails this test first, and needs another version in its name."""
    assert json.loads(FILE.read_text(encoding="utf-8")) == vectors()


def test_a_stranger_recomputes_the_digest_from_the_shown_request() -> None:
    """The approval's digest follows from a request as it is shown, and signatures verify with the public key."""
    published = json.loads(FILE.read_text(encoding="utf-8"))
    for name in ("approval", "approval_with_context"):
        view = {**published[name], "arguments": json.loads(published["call"]["arguments"])}
        assert shown_digest(view) == published[name]["digest"]
    for each in published["signed"]["statements"]:
        assert is_signed(published["signed"]["public_key"], each["signature"], each["bytes"].encode())
        assert json.loads(each["bytes"])["holdfast"] == each["format"]


def test_each_signed_statement_names_its_own_format() -> None:
    """No two kinds of statement can be confused, and a kind without a format cannot be signed."""
    kinds = [kind for kind in _kinds(Signed) if "FORMAT" in vars(kind)]
    formats = {
        "decision/1",
        "delegation/1",
        "revocation/1",
        "lift/1",
        "message/1",
        "refine/1",
        "reclassify/1",
        "adopt_policy/1",
        "extend/1",
    }
    formats |= {"key-revocation/1", "pause/1", "resume/1", "retry/1", "move/1", "compact/1"}
    assert {kind.FORMAT for kind in kinds} == formats
    assert len(set(kinds)) == len(formats)
    assert {type(each) for each in STATEMENTS} == set(kinds)


def _kinds(kind: type[Signed]) -> list[type[Signed]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _kinds(below))]


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
