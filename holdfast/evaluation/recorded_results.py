"""Answers the activities of a rerun from its recording: no tool runs, and no effect happens.

1. `call_tool` reaches neither the worker's tools nor the ledger. A recorded call gets its recorded result, each
   occurrence once; if the LLM makes the same call as often as before, each gets its own. Any other call gets a stub of
   the dataset, or an answer that nothing is recorded.
2. Calls that the run itself carries out (sub-agents, sleep) are answered in the same way: their tools become ordinary
   ones, except for the call with the structured result, which ends the rerun.
3. `load_agent` loads the current agent of the user, with the rerun's own empty folder. Recalled memory comes from the
   recording, not from this machine. The policy requires approvals as usual, but anyone may decide.
4. The only other activities that run are `call_llm` and those that keep the rerun's log in memory.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import Extensions, Policy, Terms
from holdfast.core.base.text import one_line
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, EffectsRequest, LoadedAgent, ThreadRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.evaluation.compare.datasets import Stub
from holdfast.evaluation.compare.recording import RecordedInput, RecordedResult, Recording

NOT_RECORDED = "The recording has no result of this call, so it was not made. Try another way, or answer without it."
NOT_PLAYED = "NotPlayed"
"""The error type of an activity that a rerun does not allow; the run that requested it fails."""
ANSWERED = {"kind": "activity", "previews": False}
"""Fields of a tool whose calls a rerun answers: none of them needs the workspace."""
_ALLOWED = (ArchiveRequest, EffectsRequest, LLMRequest, ThreadRequest)


@dataclass
class Rerun:
    """A rerun of a recorded run."""

    thread: str
    """The thread of the rerun."""
    recording: Recording
    folder: Path
    """Empty."""
    stubs: tuple[Stub, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    """Additional fields of its LLM requests."""
    send: Callable[[RecordedInput], Awaitable[None]] | None = None
    """Sends the rerun an input that people sent the recorded run."""
    missing: list[str] = field(default_factory=list)
    """The calls that got no result."""

    def __post_init__(self) -> None:
        self._results = {digest: list(results) for digest, results in self.recording.results.items()}
        self._answered: dict[str, ToolOutcome] = {}
        self._llm_calls: set[str] = set()
        self.decisions = {digest: list(decisions) for digest, decisions in self.recording.decisions.items()}
        """The decisions still to be repeated, by the digest of the LLM's call, oldest first."""
        self.inputs = list(self.recording.inputs)
        """The inputs still to be sent, oldest first."""

    def answer(self, request: ToolRequest) -> ToolOutcome:
        """Return the result of a call; a repeated attempt gets the same one."""
        if request.order not in self._answered:
            self._answered[request.order] = self._outcome(request)
        return self._answered[request.order]

    def _outcome(self, request: ToolRequest) -> ToolOutcome:
        call = request.call
        if results := self._results.get(call.digest):
            # Calls of one reply arrive here in any order. A rerun makes no calls itself, so it numbers only the LLM's.
            own = next((each for each in results if each.call == request.number), results[0])
            results.remove(own)
            return _recorded(own, at=datetime.now(UTC))
        for stub in self.stubs:
            if stub.fits(call):
                return ToolOutcome(status=stub.status, content=stub.text)
        self.missing.append(one_line(f"{call.name}({call.arguments})", 200))
        return ToolOutcome(status="failed", content=NOT_RECORDED)

    def loaded(self, answer: LoadedAgent) -> LoadedAgent:
        """Return the agent as the rerun uses it."""
        recorded = self.recording
        workspace = recorded.workspace or str(self.folder)  # read by the policy's conditions, never opened
        memory = answer.spec.memory
        room = {"standing": memory.standing, "files": memory.file_tokens}
        recalled = tuple(tier for tier in recorded.recalled if room[tier.tier])
        changes = {"spec": self._spec(answer.spec), "workspace": workspace, "past": None, "recalled": recalled}
        return answer.model_copy(update=changes)

    def _spec(self, spec: AgentSpec) -> AgentSpec:
        tools = tuple(
            tool if tool.name == FINAL_RESULT and spec.gives_result else tool.model_copy(update=ANSWERED)
            for tool in spec.tools
        )
        recorded = self.recording.spec
        changes: dict[str, Any] = {"tools": tools, "policy": _decided_by_the_recording(spec.policy), "verify": ()}
        changes["llm_options"] = {**spec.llm_options, **self.options}
        changes["memory"] = spec.memory.model_copy(update={"progress": False})
        # A rerun never waits, so no call is delayed.
        changes["limits"] = spec.limits.model_copy(update={"repeats_slowed": 0, "unanswered_slowed": 0})
        if recorded and spec.memory.strategies:
            changes["strategies"] = recorded.strategies
        if recorded and spec.memory.workspace_skills:
            own = {skill.name for skill in spec.skills}
            changes["skills"] = (*spec.skills, *(skill for skill in recorded.skills if skill.name not in own))
        return spec.model_copy(update=changes)

    async def before_reply(self, request: LLMRequest) -> None:
        """Send the inputs that the recorded run received during this LLM call."""
        if request.compacting or self.send is None:
            return
        self._llm_calls.add(request.order)
        while self.inputs and 0 < self.inputs[0].during <= len(self._llm_calls):
            await self.send(self.inputs.pop(0))


def _recorded(result: RecordedResult, *, at: datetime) -> ToolOutcome:
    try:
        until = None if result.seconds is None else at + timedelta(seconds=result.seconds)
    except OverflowError:  # the end is beyond the last date of `datetime`
        until = None
    outcome = ToolOutcome(status=result.status, content=result.content, trust=result.trust)
    return outcome.model_copy(update={"scope": result.scope, "until": until, "missing": result.missing})


def _decided_by_the_recording(policy: Policy) -> Policy:
    """Return a policy with the same verdicts, whose requests anyone may decide, at once and without a signature."""
    rules = tuple(rule.model_copy(update={"terms": None}) for rule in policy.rules if rule.verdict != "later")
    return policy.model_copy(
        update={
            "rules": rules,
            "approvers": (),
            "gateways": (),
            "signatures": "optional",
            "terms": Terms(),
            "extensions": Extensions(),
        }
    )


class RerunInterceptor(Interceptor):
    """A worker interceptor that answers the activities of reruns."""

    def __init__(self) -> None:
        self.reruns: dict[str, Rerun] = {}
        """Reruns by thread."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, interceptor: RerunInterceptor) -> None:
        super().__init__(next)
        self._interceptor = interceptor

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        rerun, (request, *_) = self._interceptor.reruns.get(activity.info().workflow_id or ""), input.args
        if rerun is None:
            raise _refused("no rerun has this thread")
        match request:
            case ToolRequest():
                return rerun.answer(request)
            case AgentRequest():
                # Neither the recorded folder nor one of a fork: the rerun has its own.
                input.args = [request.model_copy(update={"workspace": str(rerun.folder), "forked": None})]
                return rerun.loaded(await super().execute_activity(input))
            case LLMRequest():
                await rerun.before_reply(request)
        if not isinstance(request, _ALLOWED):
            raise _refused("a rerun executes nothing but its LLM calls")
        return await super().execute_activity(input)


def _refused(reason: str) -> ApplicationError:
    return ApplicationError(f"{activity.info().activity_type} refuses: {reason}", type=NOT_PLAYED, non_retryable=True)
