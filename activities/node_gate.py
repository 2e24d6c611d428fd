"""Whether this node takes the work of a run: an interceptor of the activities whose requests have terms for nodes.

1. The terms are sealed with the request. A node that they exclude, or whose own policy denies the work, fails the
   attempt with a retryable error, before anything of the work has begun: Temporal offers it to the next free worker.
2. No attempt that was sent on counts as one (`holdfast.activities.heartbeats`).
3. After `PATIENCE` attempts in a row, the activity answers that no node took the work, and the run waits (rule 2 of
   `holdfast.core.run.decide.placements`). If an attempt that was lost may have begun an effect, a node that may settle
   it gets more time, `SETTLING_PATIENCE`; then the activity fails, and the outcome of the call is unknown.
4. A crash before an attempt that was sent on is reported to the next one, which counts it.
5. Local activities run on the worker that has the workflow: one that does not take the work fails its attempt, and the
   run makes the call as an ordinary activity.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

from pydantic_core import from_json
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from holdfast.activities.calling_run import describe_run
from holdfast.activities.heartbeats import HidesSentOn, SentOn
from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.node_policy import judge_run, tool_verdict
from holdfast.core.authority.policy import Policy, ToolUse, Verdict, evaluate
from holdfast.core.authority.previews import PROBLEM_CHARS, CallPreview
from holdfast.core.base.text import one_line
from holdfast.core.mac.seals import ActivityResult
from holdfast.core.nodes import (
    HASH_CHARS,
    MAX_REJECTIONS,
    REASON_CHARS,
    Node,
    NodeRejection,
    NodeTerms,
    Placement,
    RejectionKind,
    placement_digest,
)
from holdfast.core.run.contracts.error_types import NODE_DECLINED, Waits
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.decide.placements import rejection_text
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.numbers import with_floats
from holdfast.worker.takeover.takeover import WORKER_DIED

log = SafeLogger(__name__)

PATIENCE = 20
"""Attempts in a row that are sent on before the activity answers that no node took the work."""

SETTLING_PATIENCE = 3 * PATIENCE
"""The same for a call whose effect may have begun: about two minutes, in which a worker that was restarted is back."""

FIRST_DELAY, LATER_DELAY = timedelta(seconds=0.1), timedelta(seconds=3)
"""Delay until Temporal offers the work again: at first, and if the run has waited for a node already. Each further
attempt waits half as long again as the one before, up to five times as long as the first."""

VERDICTS = 1_000
"""The most verdicts by the node's policy that are kept: of agents at their depths, and of their tools."""

NodeRequest = AgentRequest | LLMRequest | ToolRequest | PreviewRequest


class NodeDeclines(Exception):
    """This node does not take the work; raised before anything of it has begun.

    Args:
        kind: Why.
        reason: In words.
    """

    def __init__(self, kind: RejectionKind, reason: str) -> None:
        super().__init__(reason)
        self.kind: RejectionKind = kind
        self.reason = reason


@dataclass(frozen=True)
class NodeGate(Interceptor):
    """Decides whether this worker takes work."""

    node: Node
    policy: Policy | None
    """The node's own policy; None for none."""
    tools: Mapping[str, Tool]
    """The catalog's tools by name, for their effects."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the activity."""
        return _Gated(next, self)

    @cached_property
    def _judge_run(self) -> Callable[..., Verdict]:
        """Judges the next step of a run. Its agent and depth decide, so each verdict is computed once."""
        assert self.policy is not None
        return lru_cache(maxsize=VERDICTS)(partial(judge_run, self.policy))

    @cached_property
    def _judge_tool(self) -> Callable[..., Verdict | Policy]:
        """Judges the calls of a tool, or selects the rules about them if a condition on the arguments decides."""
        assert self.policy is not None
        return lru_cache(maxsize=VERDICTS)(partial(tool_verdict, self.policy))

    def judge(self, request: NodeRequest, terms: NodeTerms) -> Verdict | None:
        """Return the verdict of the node's own policy; None if it has none, or if the run has recorded the same.

        Raises:
            NodeDeclines: The node does not take the work.
        """
        if terms.scope and (outside := self.node.missing(terms.scope)):
            raise NodeDeclines("scope", f"it is not {outside}")
        for unfit in terms.unfit:
            if self.node.fits(unfit.nodes):
                raise NodeDeclines("constraint", unfit.reason)
        if self.policy is None or isinstance(request, AgentRequest):
            return None
        recorded = self.policy.hash[:HASH_CHARS] in terms.policies  # the run has judged its calls by it
        verdict = self._judge_run(agent=terms.agent, depth=terms.depth)
        if recorded and verdict.verdict == "allow":
            return None
        if verdict.verdict == "allow" and isinstance(request, ToolRequest) and not request.settle:
            verdict = self._judge_call(request, terms)
        if verdict.verdict == "ask" and isinstance(request, PreviewRequest):
            return None  # people are about to be asked
        reason = f"its policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")
        if verdict.verdict == "deny":
            raise NodeDeclines("policy", f"denied by {reason}")
        if verdict.verdict == "ask" and not terms.approved:
            asks = isinstance(request, ToolRequest) and request.number > 0 and not request.undo and not request.poll
            raise NodeDeclines("approval" if asks else "policy", f"approval required by {reason}")
        return verdict

    def _judge_call(self, request: ToolRequest, terms: NodeTerms) -> Verdict:
        tool = self.tools.get(request.call.name)
        if tool is None:
            raise NodeDeclines("policy", f"its catalog has no tool {request.call.name!r}")
        name, effect = request.call.name, tool.spec.effect
        rules = self._judge_tool(tool=name, effect=effect, agent=terms.agent, depth=terms.depth)
        if isinstance(rules, Verdict):
            return rules
        use = ToolUse(
            tool=name,
            effect=effect,
            arguments=with_floats(from_json(request.call.arguments), tool.spec.parameters),
            agent=terms.agent,
            depth=terms.depth,
            workspace=request.workspace,
            trust=request.trust or "web",
            context=request.context or {},
        )
        return evaluate(rules, use)


class _Gated(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, gate: NodeGate) -> None:
        super().__init__(next)
        self._gate = gate
        self._outbound: HidesSentOn | None = None

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = HidesSentOn(outbound)
        self.next.init(self._outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        request = input.args[0] if len(input.args) == 1 else None
        if not isinstance(request, NodeRequest):
            return await super().execute_activity(input)
        assert self._outbound is not None
        before = self._outbound.read_and_hide(request)
        terms = request.nodes or NodeTerms()
        try:
            verdict = self._gate.judge(request, terms)
            result = await super().execute_activity(input)
        except NodeDeclines as declined:
            return await self._send_on(request, before, declined)
        return self._placed(result, request, before, verdict)

    def _placed(self, result: Any, request: NodeRequest, before: SentOn, verdict: Verdict | None) -> Any:
        terms = request.nodes
        if (
            terms is None
            or isinstance(request, PreviewRequest)
            or not (terms.scope or terms.unfit or terms.tries or before.rejected or verdict)
        ):
            return result
        policy = self._gate.policy.hash if verdict and self._gate.policy else ""
        rule = verdict.rule if verdict else ""
        node = self._gate.node
        if _is_recorded(request, placement_digest(node, policy)) and not before.rejected:
            placement = Placement(same=True, rule=rule)
        else:
            placement = Placement(node=node, policy=policy, rule=rule, rejected=before.rejected)
        return result.model_copy(update={"placement": placement})

    def _has_effect(self, request: NodeRequest) -> bool:
        if not isinstance(request, ToolRequest):
            return False
        tool = self._gate.tools.get(request.call.name)
        return tool is None or tool.spec.effect is not Effect.READ or request.undo

    async def _send_on(self, request: NodeRequest, before: SentOn, declined: NodeDeclines) -> Any:
        """Leave the work to another node, or answer that none took it.

        Raises:
            ApplicationError: NODE_DECLINED, to be retried by another worker.
        """
        assert self._outbound is not None
        info, node = self._outbound.next.info(), self._gate.node.name
        rejection = NodeRejection(node=node, kind=declined.kind, reason=declined.reason[:REASON_CHARS])
        others = tuple(each for each in before.rejected if each.node != node)
        rejected = (*others, rejection)[-MAX_REJECTIONS:]
        log.info("node_declined", activity=info.activity_type, workflow=info.workflow_id, reason=declined.reason)
        message = f"node {node} does not take this work: {declined.reason}; another node may"
        if info.is_local:
            raise Waits(message, type=NODE_DECLINED) from None
        tries = request.nodes.tries if request.nodes else 0
        # No attempt before this one has begun the work, or it did no harm.
        untouched = before.count == info.attempt - 1 or not self._has_effect(request)
        if request.nodes and untouched and (before.count + 1 >= PATIENCE or declined.kind == "approval"):
            return _none_took(request, rejected)
        if request.nodes and before.count + 1 >= SETTLING_PATIENCE:
            words = f"{message}. An earlier attempt may have begun it"
            raise ApplicationError(words, type=NODE_DECLINED, non_retryable=True) from None
        crashed = before.crashed if info.attempt == before.last + 1 else info.attempt > 1 and await _crashed(info)
        count, last = before.count + 1, info.attempt
        after = SentOn(answers=request.order, count=count, last=last, rejected=rejected, crashed=crashed)
        self._outbound.leave(after)
        first = LATER_DELAY if tries else FIRST_DELAY
        delay = min(first * 1.5 ** min(before.count, 10), 5 * first) if before.count < PATIENCE else LATER_DELAY
        raise Waits(message, type=WORKER_DIED if crashed else NODE_DECLINED, next_retry_delay=delay) from None


def _is_recorded(request: NodeRequest, placement: str) -> bool:
    """Return whether the run has recorded a node and its policy already, and waits for none."""
    terms = request.nodes
    calls = isinstance(request, LLMRequest | ToolRequest)
    return calls and terms is not None and terms.recorded == placement and not terms.tries


def _none_took(request: NodeRequest, rejected: tuple[NodeRejection, ...]) -> ActivityResult:
    """Return the answer that no node took the work."""
    assert request.nodes is not None
    placement, why = Placement(rejected=rejected), rejection_text(rejected, request.nodes.scope)
    if isinstance(request, ToolRequest):
        unfit = request.cannot and any(each.kind == "constraint" for each in rejected)
        status: Literal["cannot", "failed"] = "cannot" if unfit else "failed"
        content = f"Not called: {why}"
        return ToolOutcome(status=status, content=content, not_called=True, placement=placement)
    if isinstance(request, PreviewRequest):
        return PreviewedCall(preview=CallPreview(problem=one_line(why, PROBLEM_CHARS)))
    if isinstance(request, LLMRequest):
        return LLMReply(rejected=why, placement=placement)
    spec = AgentSpec(name="", instructions="", tools=(), policy=Policy(), llm="", limits=Limits())
    return LoadedAgent(spec=spec, workspace="", problem=why, placement=placement)


async def _crashed(info: activity.Info) -> bool:
    """Return whether the attempt before this one ended with its worker: its time is over, or a takeover ended it."""
    description = (await describe_run(info.workflow_id or "", info.workflow_run_id or "")).raw_description
    own = next((each for each in description.pending_activities if each.activity_id == info.activity_id), None)
    if own is None:
        return False
    failure = own.last_failure
    died = failure.HasField("application_failure_info") and failure.application_failure_info.type == WORKER_DIED
    return died or failure.HasField("timeout_failure_info")
