"""Golden values: the results of fixed inputs, which stay the same in every later release.

The run has feature level 0, like every run that the first release recorded: additions of later releases to the log come
at a higher level.
"""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import WorkflowSerializationContext

from holdfast.client.signed_requests import SignedParts, digest_of
from holdfast.config.encryption_keys import parse_keys
from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.interventions import Message
from holdfast.core.authority.policy import Approver, Policy, allow, ask
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision, Revocation, Signed
from holdfast.core.base.canonical import address_of, canonical
from holdfast.core.llm.blocks import ImageBlock, ProviderPart, ReasoningBlock, TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.mac.seals import FleetKeys, WorkflowRef, call_name
from holdfast.core.run.contracts.commands import Call, Request, Result
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.machine.rollover import HistorySize
from holdfast.core.tools.effects import Effect, effect_key
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.transcript.transcript import ref_digest
from holdfast.encryption.codec import EncryptionCodec
from holdfast.storage.blocks import Block, pack, unpack

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = encode_key(bytes(32))
THREAD = "rel-1.2"

STATEMENTS: tuple[Signed, ...] = (
    Decision(decision="approve", request="1", by="alice", digest="0" * 64, arguments={"b": [1.5, None], "a": "é"}),
    Decision(decision="happened", request="2", by="alice", digest="1" * 64, result="paid", reason="I looked"),
    AuthorityDelegation(by="alice", to="bob", until=AT, reason="on holiday"),
    Revocation(by="alice", remembered="1"),
    Revocation(by="alice", delegated_to="bob"),
    Message(by="alice", message="go on", id="m1", until=AT),
)


def goldens() -> dict[str, str]:
    """Return the results of the current code for the fixed inputs."""
    call = ToolCall(id="c1", name="pay", arguments='{"amount": 5, "to": "é"}')
    values: dict[str, Any] = {"b": [1, 1.5, 1e100, True, None], "a": "é\n\u2028😀", "A": {}}
    run = _played()
    return {
        "canonical JSON": canonical(values).decode(),
        "call digest": call.digest,
        "effect key": effect_key(thread=THREAD, first_run_id="r1", number=1, call_digest=call.digest),
        "order": call_name(workflow_id=THREAD, first_run_id="r1", number=12),
        "transcript reference": ref_digest("0" * 64, "1" * 64),
        "artifact address": address_of(b"content"),
        "seal": FleetKeys({"k1": bytes(32)})
        .seal(WorkflowRef("default", THREAD), "RunInput", b"json/plain", b"{}")
        .hex(),
        "snapshot": snapshot_of(run.log.events).model_dump_json(exclude_defaults=True),
        **{f"log {number:02}": line.decode() for number, line in enumerate(run.log.page(0).split(b"\n"))},
        **dict(_signed()),
    }


def _signed() -> Iterator[tuple[str, str]]:
    """Return the signed bytes, and the signature: Ed25519 is deterministic."""
    signed = {f"{type(each).__name__} {number}": each.signed_bytes(THREAD) for number, each in enumerate(STATEMENTS)}
    parts = SignedParts("https://gateway.example", "POST", "/threads/rel-1.2/decisions", digest_of(b"{}"))
    for name, text in {**signed, "HTTP request": parts.signed_bytes("1767323045", "nonce")}.items():
        yield f"signed {name}", text.decode()
        yield f"signature of {name}", sign(KEY, text)


# A run: three calls, two of which ask, with a rejected signal, changed arguments and an unknown outcome.


class _Run:
    """Drives an agent run: a second passes with each input."""

    def __init__(self, begin: RunInput) -> None:
        self.at, self.open = AT, list[Call]()
        self.run = AgentRun(begin, thread=THREAD, run_id="r1", first_run_id="r1", at=self.at, started_at=self.at)

    def observed(self) -> AgentRun:
        """Return the run, after a second has passed."""
        self.open += [command for command in self.run.commands() if isinstance(command, Call)]
        self.at += timedelta(seconds=1)
        self.run.observe(at=self.at, history=HistorySize())
        return self.run

    def end(self, kind: type[Request], result: Result) -> None:
        """Answer the oldest open request of a kind."""
        run = self.observed()
        call = next(call for call in self.open if isinstance(call.request, kind))
        self.open.remove(call)
        run.ended(call.id, result.model_copy(update={"answers": call.request.order}))


def _played() -> AgentRun:
    tools = tuple(
        ToolSpec(name=name, description=name, parameters={"type": "object"}, effect=effect, timeout=5)
        for name, effect in (("look", Effect.READ), ("pay", Effect.UNSAFE), ("wipe", Effect.UNSAFE))
    )
    people = (Approver(name="alice", keys=(public_key(KEY),)), Approver(name="bob"))
    policy = Policy(rules=(allow("look"), ask("pay"), ask("wipe")), approvers=people)
    spec = AgentSpec(name="clerk", instructions="Work.", tools=tools, policy=policy, llm="scripted", limits=Limits())
    tool_calls = tuple(ToolCall(id=f"c-{tool.name}", name=tool.name, arguments="{}") for tool in tools)

    thought = ReasoningBlock(text="hm", provider=ProviderPart(issuer="responses", data={"id": "rs_1", "score": 600.0}))
    picture = ImageBlock(data="AAAA", media_type="image/png")

    play = _Run(RunInput(task=(TextBlock(text="pay"), ImageBlock(url="https://example.com/a.png")), by="carol"))
    play.end(AgentRequest, LoadedAgent(spec=spec, workspace="/w"))
    play.end(LLMRequest, LLMReply(message=AssistantMessage(content=(thought, *tool_calls))))
    play.end(ToolRequest, ToolOutcome(status="ok", content=(TextBlock(text="looked"), picture)))
    play.observed().signal("nonsense", {"by": "eve"})
    play.observed().signal("deny", {"request": "2", "by": "bob", "reason": "never"})
    changed = {"decision": "approve", "request": "1", "by": "alice", "arguments": {"amount": 7}, "remember": True}
    play.observed().update("decide", changed)
    play.observed().signal("say", {"message": "hurry", "by": "bob"})
    play.end(ToolRequest, ToolOutcome(status="unknown", content="no answer"))
    play.observed().signal("reconcile", {"request": "3", "decision": "happened", "result": "paid", "by": "alice"})
    play.end(LLMRequest, LLMReply(message=AssistantMessage(content="done")))
    return play.run


# Output in forms that differ each time: later releases read it.

_ENCRYPTION = "k1:" + base64.b64encode(bytes(32)).decode()
_INPUT = b'{"task":"pay"}'


def written(before: dict[str, Any]) -> dict[str, Any]:
    """Return a block of the record and an encrypted payload, reusing earlier ones if they are valid."""
    lines = [line for name, line in sorted(goldens().items()) if name.startswith("log ")]
    with suppress(ValueError):  # not released, and of another format
        if before and read(before) == (lines, _INPUT.decode()):
            return before
    (block,) = pack(0, [line.encode() for line in lines])
    (encrypted,) = asyncio.run(_codec().encode([Payload(metadata={"encoding": b"json/plain"}, data=_INPUT)]))
    return {"block": {**block._asdict(), "body": block.body.hex()}, "encrypted": encrypted.SerializeToString().hex()}


def read(stored: dict[str, Any]) -> tuple[list[str], str]:
    """Return the lines of the block and the input in the payload that a release has written."""
    block = Block(**{**stored["block"], "body": bytes.fromhex(stored["block"]["body"])})
    (payload,) = asyncio.run(_codec().decode([Payload.FromString(bytes.fromhex(stored["encrypted"]))]))
    return [line.decode() for line in unpack(block)], payload.data.decode()


def _codec() -> EncryptionCodec:
    context = WorkflowSerializationContext(namespace="default", workflow_id=THREAD)
    return EncryptionCodec(parse_keys(_ENCRYPTION)).with_context(context)
