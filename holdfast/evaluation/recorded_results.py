"""Answers the activities of a play from its recording: no tool runs, whatever it is, and no effect happens.

1. `call_tool` never reaches the worker's tools, nor the ledger: a call that the recording has gets its recorded result,
   each occurrence once, and its own where the LLM makes the same call as often; another one gets a stub of the set, or
   reads that nothing is recorded.
2. What the run carries out itself (sub-agents, sleep) is answered in the same way: its tools become ordinary ones, but
   for the call that gives a structured result, which ends the play.
3. `load_agent` loads the user's agent as it is today, under the play's own empty folder. What the recorded run read
   from its memory takes the place of what this machine has. The policy asks as ever, but anybody may decide.
4. Of all other activities, only those run that keep the play's log in memory, and `call_llm`.
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
"""The error of an activity that a play does not let run. The run that asked for it fails."""
_RUN_AS_THEY_ARE = (ArchiveRequest, EffectsRequest, LLMRequest, ThreadRequest)


@dataclass
class Play:
    """A recorded run that is played again."""

    thread: str
    """The thread of the play."""
    recording: Recording
    folder: Path
    """Empty."""
    stubs: tuple[Stub, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    """Additional fields of its LLM requests."""
    send: Callable[[RecordedInput], Awaitable[None]] | None = None
    """Sends the play what people sent the recorded run."""
    missing: list[str] = field(default_factory=list)
    """The calls that got no result."""

    def __post_init__(self) -> None:
        self._results = {digest: list(results) for digest, results in self.recording.results.items()}
        self._answered: dict[str, ToolOutcome] = {}
        self._llm_calls: set[str] = set()
        self.decisions = {digest: list(made) for digest, made in self.recording.decisions.items()}
        """Those that are still to be made, by the digest of the LLM's call, oldest first."""
        self.inputs = list(self.recording.inputs)
        """What is still to be sent, oldest first."""

    def answer(self, request: ToolRequest) -> ToolOutcome:
        """Return the result of a call. A repeated attempt gets the same."""
        if request.order not in self._answered:
            self._answered[request.order] = self._outcome(request)
        return self._answered[request.order]

    def _outcome(self, request: ToolRequest) -> ToolOutcome:
        call = request.call
        if results := self._results.get(call.digest):
            # Calls of one reply arrive here in any order. A play makes no calls of its own: it numbers the LLM's alone.
            own = next((each for each in results if each.call == request.number), results[0])
            results.remove(own)
            return _recorded(own, at=datetime.now(UTC))
        for stub in self.stubs:
            if stub.fits(call):
                return ToolOutcome(status=stub.status, content=stub.text)
        self.missing.append(one_line(f"{call.name}({call.arguments})", 200))
        return ToolOutcome(status="failed", content=NOT_RECORDED)

    def loaded(self, answer: LoadedAgent) -> LoadedAgent:
        """Return the agent as the play runs it."""
        recorded = self.recording
        workspace = recorded.workspace or str(self.folder)  # the policy's conditions read it; nothing opens it
        memory = answer.spec.memory
        room = {"standing": memory.standing, "files": memory.file_tokens}
        recalled = tuple(tier for tier in recorded.recalled if room[tier.tier])
        changes = {"spec": self._spec(answer.spec), "workspace": workspace, "past": None, "recalled": recalled}
        return answer.model_copy(update=changes)

    def _spec(self, spec: AgentSpec) -> AgentSpec:
        tools = tuple(
            tool if tool.name == FINAL_RESULT and spec.gives_result else tool.model_copy(update={"kind": "activity"})
            for tool in spec.tools
        )
        recorded = self.recording.spec
        changes: dict[str, Any] = {"tools": tools, "policy": _decided_by_the_recording(spec.policy), "verify": ()}
        changes["llm_options"] = {**spec.llm_options, **self.options}
        changes["memory"] = spec.memory.model_copy(update={"progress": False})
        # A play waits for nothing: a call that repeats itself does not start later.
        changes["limits"] = spec.limits.model_copy(update={"repeats_slowed": 0})
        if recorded and spec.memory.strategies:
            changes["strategies"] = recorded.strategies
        if recorded and spec.memory.workspace_skills:
            own = {skill.name for skill in spec.skills}
            changes["skills"] = (*spec.skills, *(skill for skill in recorded.skills if skill.name not in own))
        return spec.model_copy(update=changes)

    async def before_reply(self, request: LLMRequest) -> None:
        """Send what the recorded run was sent during this LLM call."""
        if request.compacting or self.send is None:
            return
        self._llm_calls.add(request.order)
        while self.inputs and 0 < self.inputs[0].during <= len(self._llm_calls):
            await self.send(self.inputs.pop(0))


def _recorded(result: RecordedResult, *, at: datetime) -> ToolOutcome:
    try:
        until = None if result.seconds is None else at + timedelta(seconds=result.seconds)
    except OverflowError:  # so long, counted from now, that no calendar has its end
        until = None
    outcome = ToolOutcome(status=result.status, content=result.content, trust=result.trust)
    return outcome.model_copy(update={"scope": result.scope, "until": until})


def _decided_by_the_recording(policy: Policy) -> Policy:
    """The policy with the same verdicts, whose requests anybody may decide, at once and without a signature."""
    rules = tuple(rule.model_copy(update={"terms": None}) for rule in policy.rules)
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


class Playback(Interceptor):
    """A worker interceptor that answers the activities of plays."""

    def __init__(self) -> None:
        self.plays: dict[str, Play] = {}
        """By thread."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, playback: Playback) -> None:
        super().__init__(next)
        self._playback = playback

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        play, (order, *_) = self._playback.plays.get(activity.info().workflow_id or ""), input.args
        if play is None:
            raise _refused("no play has this thread")
        match order:
            case ToolRequest():
                return play.answer(order)
            case AgentRequest():
                # Neither the recorded folder nor one of a fork: the play has one of its own.
                input.args = [order.model_copy(update={"workspace": str(play.folder), "forked": None})]
                return play.loaded(await super().execute_activity(input))
            case LLMRequest():
                await play.before_reply(order)
        if not isinstance(order, _RUN_AS_THEY_ARE):
            raise _refused("a play runs nothing but its LLM")
        return await super().execute_activity(input)


def _refused(why: str) -> ApplicationError:
    return ApplicationError(f"{activity.info().activity_type} refuses: {why}", type=NOT_PLAYED, non_retryable=True)
