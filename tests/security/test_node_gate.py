"""Which work a node takes: nothing out of scope, nothing that its own policy denies, whatever anybody else claims."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio import activity
from temporalio.converter import ActivitySerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from holdfast.activities.heartbeats import SentOn, sealed_details
from holdfast.activities.node_gate import PATIENCE, SETTLING_PATIENCE, NodeGate
from holdfast.core.authority.policy import Policy, Rule, allow, ask, deny
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.nodes import HASH_CHARS, Node, NodeTerms, Placement, Unfit, placement_digest
from holdfast.core.run.contracts.error_types import NODE_DECLINED
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.temporal.converter import sealing
from holdfast.core.tools.decorator import tool
from holdfast.core.tools.effects import Effect
from holdfast.core.transcript.transcript import TranscriptRef
from holdfast.worker.takeover.takeover import WORKER_DIED

OURS = FleetKeys({"a": b"k" * 32})
BERLIN = Node(name="berlin-1", labels={"region": "eu"})
EU, US = (("region=eu",),), (("region=us",),)


@tool(effect=Effect.UNSAFE)
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


TOOLS = {"pay": pay}


def llm(**terms: Any) -> LLMRequest:
    """Return a request for an LLM call with these terms for nodes."""
    nodes = NodeTerms(agent="clerk", **terms)
    return LLMRequest(order="1.abc", transcript=TranscriptRef(length=0, digest=""), nodes=nodes)


def payment(*, cents: int = 5, **terms: Any) -> ToolRequest:
    """Return a request for a payment with these terms for nodes."""
    call = ToolCall(id="c", name="pay", arguments=f'{{"cents":{cents}}}')
    nodes = NodeTerms(agent="clerk", **terms)
    return ToolRequest(order="1.abc", call=call, key="k", number=1, workspace="/w", cannot=True, nodes=nodes)


class Ended(ActivityInboundInterceptor):
    """The activity behind the gate: it notes how the attempt looks to it, and sends a heartbeat of its own."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.seen: list[activity.Info] = []

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.outbound = outbound

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self.seen.append(self.outbound.info())
        self.outbound.heartbeat("own", "details")
        return self.result


class Server(ActivityOutboundInterceptor):
    """Temporal's side of an attempt: its information, and the heartbeats that it receives."""

    def __init__(self, env: ActivityEnvironment) -> None:
        self.env = env
        self.beats: list[tuple[Any, ...]] = []

    def info(self) -> activity.Info:
        return self.env.info

    def heartbeat(self, *details: Any) -> None:
        self.beats.append(details)


class Attempt:
    """One attempt at an activity behind the gate of a node."""

    def __init__(
        self, request: Any, *, node: Node = BERLIN, policy: Policy | None = None, result: Any = None, **info: Any
    ) -> None:
        self.request = request
        self.activity = Ended(result or ToolOutcome(status="ok", content="paid"))
        self.env = ActivityEnvironment()
        context = ActivitySerializationContext(
            namespace="default",
            workflow_id="t",
            workflow_type="w",
            activity_type="call_tool",
            activity_task_queue="q",
            activity_id="1",
            is_local=False,
        )
        self.env.payload_converter = sealing(OURS)().with_context(context)
        self.env.info = dataclasses.replace(self.env.info, workflow_id="t", **info)
        self.server = Server(self.env)
        self.gated = NodeGate(node, policy, TOOLS).intercept_activity(self.activity)
        self.gated.init(self.server)

    async def run(self) -> Any:
        """Make the attempt; return its answer, or the error with which it was sent on."""
        begin = ExecuteActivityInput(fn=lambda: None, args=[self.request], executor=None, headers={})
        try:
            return await self.env.run(self.gated.execute_activity, begin)
        except ApplicationError as error:
            return error


@pytest.fixture
def no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal reports no crash before an attempt."""

    async def crashed(info: activity.Info) -> bool:
        return False

    monkeypatch.setattr("holdfast.activities.node_gate._crashed", crashed)


def details_of(sent_on: SentOn, *own: str) -> list[Any]:
    """Return the heartbeat details after attempts that were sent on."""
    env = Attempt(llm()).env
    return [*own, *env.run(sealed_details, sent_on)]


async def sent_on(attempts: int, request: Any, details: Sequence[Any] = (), **where: Any) -> tuple[Any, Sequence[Any]]:
    """Make attempts on one node until one is not sent on; return the last answer and the last details."""
    answer: Any = None
    for number in range(1, attempts + 1):
        attempt = Attempt(request, attempt=number, heartbeat_details=list(details), **where)
        answer = await attempt.run()
        details = attempt.server.beats[-1] if attempt.server.beats else details
        if not isinstance(answer, ApplicationError):
            break
    return answer, details


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (llm(scope=US), LLMReply),
        (payment(scope=US), ToolOutcome),
        (AgentRequest(order="1.abc", agent=None, workspace=None, nodes=NodeTerms(scope=US)), LoadedAgent),
    ],
)
async def test_a_node_out_of_scope_sends_the_work_on_and_at_last_says_that_none_took_it(
    request_: Any, answer: type[Any]
) -> None:
    """The activity never begins; each error is retryable, after a growing delay; the answer names node and reason."""
    first = Attempt(request_)
    error = await first.run()
    assert (error.type, error.non_retryable, first.activity.seen) == (NODE_DECLINED, False, [])
    assert 0 < error.next_retry_delay.total_seconds() < 1
    last, _ = await sent_on(PATIENCE, request_)
    assert isinstance(last, answer)
    assert last.placement.node is None
    assert [(each.node, each.kind, each.reason) for each in last.placement.rejected] == [
        ("berlin-1", "scope", "it is not region=us")
    ]


@pytest.mark.parametrize("policy", [Policy(), Policy(rules=(deny("execute_run"),))])
async def test_a_preview_is_computed_in_scope_alone(policy: Policy) -> None:
    """A preview runs code of the tool: no node out of scope computes it, and none whose policy refuses the run."""
    call = ToolCall(id="c", name="pay", arguments='{"cents":5}')
    scope = EU if policy.rules else US
    nodes = NodeTerms(agent="clerk", scope=scope)
    request = PreviewRequest(order="1.abc", request="1", call=call, key="k", workspace="/w", nodes=nodes)
    first = Attempt(request, policy=policy)
    error = await first.run()
    assert (error.type, first.activity.seen) == (NODE_DECLINED, [])
    last, _ = await sent_on(PATIENCE, request, policy=policy)
    assert isinstance(last, PreviewedCall)
    assert "no node" in last.preview.problem.lower()


async def test_a_preview_is_computed_where_people_are_asked() -> None:
    """A node whose policy asks about the run computes the preview, for the people who are asked."""
    call = ToolCall(id="c", name="pay", arguments='{"cents":5}')
    nodes = NodeTerms(agent="clerk", scope=EU)
    request = PreviewRequest(order="1.abc", request="1", call=call, key="k", workspace="/w", nodes=nodes)
    taken = Attempt(request, policy=Policy(rules=(ask("execute_run"),)))
    assert not isinstance(await taken.run(), ApplicationError)
    assert taken.activity.seen


async def test_attempts_that_were_sent_on_are_hidden_from_the_activity() -> None:
    """The node that takes the work sees a first attempt with its own details, and its heartbeats keep the count."""
    _, details = await sent_on(7, payment(scope=EU), node=Node(name="paris-1"))
    taken = Attempt(payment(scope=EU), attempt=8, heartbeat_details=list(details))
    outcome = await taken.run()
    (seen,) = taken.activity.seen
    assert (seen.attempt, tuple(seen.heartbeat_details)) == (1, ())
    assert seen.current_attempt_scheduled_time == seen.scheduled_time
    assert (outcome.placement.node, [each.node for each in outcome.placement.rejected]) == (BERLIN, ["paris-1"])
    (beat,) = taken.server.beats
    assert beat[:2] == ("own", "details")
    again = Attempt(payment(scope=EU), attempt=9, heartbeat_details=list(beat))
    await again.run()
    (seen,) = again.activity.seen
    assert (seen.attempt, tuple(seen.heartbeat_details)) == (2, ("own", "details"))


async def test_work_that_an_attempt_has_begun_is_never_reported_as_taken_by_none(no_crash: None) -> None:
    """Its effect may have happened: after attempt 4, which ran, other nodes send the work on for two minutes, so that
    a node that may can settle it. Then its outcome is unknown, and people decide.
    """
    details: Sequence[Any] = details_of(SentOn(answers="1.abc", count=3, last=3), "own", "details")
    seconds = 0.0
    for number in range(5, SETTLING_PATIENCE + 1):
        attempt = Attempt(payment(scope=US), attempt=number, heartbeat_details=list(details))
        error = await attempt.run()
        assert not error.non_retryable
        seconds += error.next_retry_delay.total_seconds()
        details = attempt.server.beats[-1]
    assert 120 < seconds < 180
    last = await Attempt(payment(scope=US), attempt=SETTLING_PATIENCE + 1, heartbeat_details=list(details)).run()
    assert (last.type, last.non_retryable) == (NODE_DECLINED, True)
    assert details[:2] == ("own", "details")
    settling = Attempt(payment(scope=EU), attempt=SETTLING_PATIENCE + 1, heartbeat_details=list(details))
    await settling.run()
    assert settling.activity.seen[0].attempt == 2


async def test_an_llm_call_that_a_lost_worker_has_begun_waits_for_a_node_as_ever(no_crash: None) -> None:
    """It has no effect, so the run can say for which node it waits."""
    details = details_of(SentOn(answers="1.abc", count=PATIENCE - 1, last=PATIENCE), "own", "details")
    answer = await Attempt(llm(scope=US), attempt=PATIENCE + 1, heartbeat_details=details).run()
    assert isinstance(answer, LLMReply)
    assert answer.placement
    assert answer.placement.rejected


async def test_a_crash_before_an_attempt_that_was_sent_on_is_passed_on() -> None:
    """The next attempt counts it: a call that kills its workers is not repeated without end."""
    details = details_of(SentOn(answers="1.abc", count=1, last=2, crashed=True))
    error = await Attempt(payment(scope=US), attempt=3, heartbeat_details=details).run()
    assert error.type == WORKER_DIED


@pytest.mark.parametrize("forged", ["plain", "other call", "other key"])
async def test_forged_counts_are_dropped(forged: str, no_crash: None) -> None:
    """Anybody with access to Temporal can write heartbeats: they hide no attempt, and end no wait."""
    claim = SentOn(answers="2.abc" if forged == "other call" else "1.abc", count=PATIENCE - 1, last=PATIENCE - 1)
    details = [*details_of(claim)]
    if forged == "plain":
        details = ["", claim.model_dump_json()]
    if forged == "other key":
        details[0] = details[0][:-4] + "AAAA"
    taken = Attempt(payment(scope=EU), attempt=2, heartbeat_details=details)
    await taken.run()
    assert taken.activity.seen[0].attempt == 2
    error = await Attempt(payment(scope=US), attempt=2, heartbeat_details=details).run()
    assert isinstance(error, ApplicationError)


async def test_a_nodes_own_policy_is_stricter_than_the_recorded_one_and_never_looser() -> None:
    """What it denies does not run there; what it asks about runs only with a person's approval; what it allows runs."""
    denying = Policy(rules=(deny("pay", when="args.cents > 100", reason="too much for here"), allow()))
    small = await Attempt(payment(), policy=denying).run()
    assert (small.status, small.placement.policy, small.placement.rule) == ("ok", denying.hash, "allow *")
    large, _ = await sent_on(PATIENCE, payment(cents=500), policy=denying)
    assert (large.status, large.placement.rejected[0].kind) == ("failed", "policy")
    assert "too much for here" in large.placement.rejected[0].reason
    asking = Policy(rules=(ask("pay"), allow()))
    asked = Attempt(payment(), policy=asking)
    answer = await asked.run()
    assert (asked.activity.seen, answer.placement.rejected[0].kind) == ([], "approval")
    assert (await Attempt(payment(approved=True), policy=asking).run()).status == "ok"
    assert isinstance(await Attempt(payment(cents=500, approved=True), policy=denying).run(), ApplicationError)


async def test_a_policy_that_has_judged_the_work_is_not_asked_again() -> None:
    """The recorded policy of the run, by its hash: its approvals and remembered rules count."""
    own = Policy(rules=(ask("pay"),))
    outcome = await Attempt(payment(policies=(own.hash[:HASH_CHARS],)), policy=own).run()
    assert (outcome.status, outcome.placement) == ("ok", None)


async def test_a_node_that_is_recorded_already_names_only_the_rule_that_let_the_work_run() -> None:
    """Another node, another policy, nodes that sent the work on, and a run that waits for a node get it in full."""
    policy = Policy(rules=(deny("pay", when="args.cents > 100"), allow()))
    recorded = placement_digest(BERLIN, policy.hash)
    again = await Attempt(payment(recorded=recorded), policy=policy).run()
    assert again.placement == Placement(same=True, rule="allow *")
    full = Placement(node=BERLIN, policy=policy.hash, rule="allow *")
    for other in (placement_digest(Node(name="berlin-1"), policy.hash), placement_digest(BERLIN, ""), policy.hash):
        assert (await Attempt(payment(recorded=other), policy=policy).run()).placement == full
    assert (await Attempt(payment(recorded=recorded, tries=1), policy=policy).run()).placement == full
    _, details = await sent_on(1, payment(scope=EU), node=Node(name="paris-1"))
    taken = Attempt(payment(scope=EU, recorded=recorded), policy=policy, attempt=2, heartbeat_details=list(details))
    assert [each.node for each in (await taken.run()).placement.rejected] == ["paris-1"]
    large = await Attempt(payment(cents=500, recorded=recorded), policy=policy).run()
    assert isinstance(large, ApplicationError)


async def test_a_rule_about_the_execution_of_runs_rejects_each_step() -> None:
    """It has the exact name `execute_run`: a rule for every tool keeps its meaning, and stops no run."""
    strict = Policy(rules=(Rule(verdict="deny", tool="execute_run", agent="clerk", reason="no clerks"), allow()))
    reply, _ = await sent_on(PATIENCE, llm(), policy=strict)
    assert "no clerks" in reply.placement.rejected[0].reason
    assert isinstance(await Attempt(llm(policies=(strict.hash[:HASH_CHARS],)), policy=strict).run(), ApplicationError)
    tools_only = Policy(rules=(deny("*"),))
    assert (await Attempt(llm(), policy=tools_only, result=LLMReply()).run()).placement.node == BERLIN


async def test_a_node_that_a_tool_could_not_run_on_does_not_get_the_call_again() -> None:
    """The answer is `cannot`, with the reason of the constraint; another node takes it."""
    unfit = (Unfit(nodes="region=eu", reason="constraint 1: no route"),)
    answer, _ = await sent_on(PATIENCE, payment(unfit=unfit))
    assert (answer.status, answer.placement.rejected[0].kind) == ("cannot", "constraint")
    assert "no route" in str(answer.content)
    assert (await Attempt(payment(unfit=unfit), node=Node(name="paris-1")).run()).status == "ok"


async def test_a_local_activity_is_left_to_an_ordinary_one() -> None:
    """It runs on the worker that has the workflow, so it cannot be retried elsewhere, and sends no heartbeat."""
    attempt = Attempt(payment(scope=US), is_local=True)
    assert isinstance(await attempt.run(), ApplicationError)
    assert (attempt.server.beats, attempt.activity.seen) == ([], [])


async def test_work_without_terms_is_taken_by_every_node() -> None:
    """A run of an older level has none, and its answers are as they were."""
    request = payment().model_copy(update={"nodes": None})
    assert (await Attempt(request).run()).placement is None
