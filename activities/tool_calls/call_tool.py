"""`call_tool`: runs one tool call, following the rules of `holdfast.core.tools.effects`."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import Chains, calling_thread
from holdfast.activities.heartbeats import heartbeats, sealed_details
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.middleware import MiddlewareStack
from holdfast.activities.tool_calls.context_updates import CallContext
from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes, WorkerCrashes, abandoned_message
from holdfast.activities.tool_calls.file_trust import FileTrust
from holdfast.activities.tool_calls.guarded_call import GuardedCall
from holdfast.activities.tool_calls.lost_effects import LostEffect, with_settling_notice
from holdfast.activities.tool_calls.previews import changed_since
from holdfast.activities.tool_calls.tool_attempt import Attempt, tool_context
from holdfast.activities.tool_calls.tool_outcomes import Outcomes, RawResult
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.middleware import ToolWork
from holdfast.core.base.canonical import exact_json
from holdfast.core.llm.blocks import text_of
from holdfast.core.nodes import NO_NODE, Node
from holdfast.core.run.contracts.ledger import CallAttempt, ClaimedEffect, EffectLedger
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.decide.reactions import CLOSED_EARLY, OUTCOME_UNKNOWN
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.decorator import NO_RESOURCES, Tool
from holdfast.core.tools.effects import Effect, PastEffect, describe_call, second_attempt
from holdfast.core.tools.failures import FailureKind
from holdfast.core.tools.foreign_waits import Resumed
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.transcript.transcript import tool_message
from holdfast.core.trust import NO_ORIGIN
from holdfast.workspace.memory.progress_tool import update_progress
from holdfast.workspace.tainted_files import TaintedFiles


class Tools:
    """Runs tools from the worker's catalog.

    Args:
        catalog: The agents and tools of this worker.
        ledger: Records effects before and after they happen.
        chains: Maps a Temporal run to its chain.
        transcripts: This worker's cache of transcripts.
        artifacts: Stores results that are too long for the log.
        secrets: Passed to the tools that declare them, and redacted from every result.
        resources: The catalog's resources by type, passed to the tools that ask for them.
        middleware: The middleware; None for none.
        node: This node, as far as a tool's `Cannot` is about it.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledger: EffectLedger,
        chains: Chains,
        transcripts: TranscriptCache,
        artifacts: ArtifactStore,
        secrets: Secrets = NO_SECRETS,
        resources: Mapping[Any, Any] = NO_RESOURCES,
        middleware: MiddlewareStack | None = None,
        node: Node = NO_NODE,
    ) -> None:
        self._node = node
        self._catalog = catalog
        self._ledger = ledger
        self._chains = chains
        self._transcripts = transcripts
        self._artifacts = artifacts
        self._secrets = secrets
        self._resources = resources
        self._middleware = middleware
        self._crashes = WorkerCrashes()
        self._tainted_files = TaintedFiles()

    @activity.defn
    async def call_tool(self, request: ToolRequest) -> ToolOutcome:
        """See `holdfast.core.run.contracts.table.CALL_TOOL`."""
        tool = self._catalog.tools.get(request.call.name)
        if tool is None:
            raise ApplicationError(
                f"this worker's catalog has no tool {request.call.name!r}; start a worker that has it",
                type="ToolNotFound",
            )
        if tool.spec.pin != request.pin:
            changed = (
                f"{tool.spec.name} has changed since this run was offered it; an operator must accept it, and start"
            )
            return await self._invalid(tool, request, f"{changed} a new run")
        try:
            arguments = tool.read(request.call.arguments)
        except ArgumentsInvalid as error:
            return await self._invalid(tool, request, f"the arguments do not fit: {error}")
        if arguments.text != request.call.arguments and not _lacks_newer(tool, request.call.arguments, arguments.text):
            # Reading them leniently here could run other arguments than the policy judged.
            hint = f"the tool reads them as {arguments.text[:2_000]}; give exactly that, or other arguments"
            return await self._invalid(tool, request, f"the arguments are not in the form in which they run: {hint}")
        if request.resumed and request.resumed.task:
            # Reading, answering and cancelling a task is safe to repeat, whatever the tool does.
            tool = replace(tool, spec=tool.spec.model_copy(update={"effect": Effect.READ}))
        attempt = self._attempt(tool, arguments.values, request, await self._resumed(request))
        # Only through its context can a tool use the workspace.
        files = FileTrust(tool, arguments.values, request, self._tainted_files) if tool.takes_context else None
        first = activity.info().attempt == 1 and not activity.info().is_local
        before = None if first else await self._crashes.before(request)
        notes, started = AttemptNotes(request, before), time.monotonic()
        async with heartbeats(*(sealed_details(before) if before else ())):
            try:
                if before and before.deaths >= request.max_worker_deaths:
                    outcome = await self._abandon(tool, request, abandoned_message(tool.spec.name, before.deaths))
                else:
                    if files:
                        await files.mark()
                    outcome = await self._execute(self._execution(attempt, request, notes))
            except Exception as error:
                notes.record_failure(error, seconds=time.monotonic() - started, secrets=self._secrets)
                raise
        if files:
            outcome = await files.label(outcome)
        if before and request.failures:
            outcome = outcome.model_copy(update={"failures": before.failures})
        pending = outcome.question or outcome.task or request.cancels
        if outcome.status != "unknown" and not outcome.unfit and not request.poll and not pending:
            self._transcripts.add_result(
                tool_message(request.call.id, request.call.name, outcome.status, outcome.content)
            )
        return outcome

    async def _resumed(self, request: ToolRequest) -> Resumed | None:
        """Return what the call continues with."""
        if request.resumed is None:
            return None
        given = request.resumed
        state = (await self._artifacts.get(given.state)).decode() if given.state else None
        responses = from_json(given.responses) if given.responses else {}
        return Resumed(responses, state, given.task, given.answered, polls=request.poll > 0, cancels=request.cancels)

    def _attempt(self, tool: Tool, arguments: dict[str, Any], request: ToolRequest, resumed: Resumed | None) -> Attempt:
        context = tool_context(request, tool, self._secrets, origin=request.origin or NO_ORIGIN, resumed=resumed)
        run_context = CallContext(request.context, request.writes)
        return Attempt(tool, arguments, context, self._resources, run_context, self._secrets, self._node)

    def _execution(self, attempt: Attempt, request: ToolRequest, notes: AttemptNotes) -> "ToolExecution":
        outcomes = Outcomes(self._artifacts, calling_thread(), request, self._secrets)
        stack, transcripts = self._middleware, self._transcripts
        guard = GuardedCall(attempt, outcomes, stack, transcripts, request) if stack else None
        return ToolExecution(attempt, outcomes, request, notes, guard)

    async def _abandon(self, tool: Tool, request: ToolRequest, why: str) -> ToolOutcome:
        """Return the outcome of a call that crashed its workers. The tool's check does not run: it might do so, too."""
        cause: FailureKind | None = "no_response" if request.failures else None
        if tool.spec.effect is Effect.READ:
            return ToolOutcome(status="failed", content=why, cause=cause)
        async with self._claim(request) as entry:
            if not request.undo and (recorded := await self._recorded_outcome(tool, request, entry)):
                return recorded
            return await self._unknown(tool, request, entry, RawResult(status="unknown", content=why, cause=cause))

    async def _invalid(self, tool: Tool, request: ToolRequest, why: str) -> ToolOutcome:
        """Return the outcome of arguments that this worker's tool rejects. Earlier attempts may have run elsewhere."""
        why = self._secrets.redact(why)
        if tool.spec.effect is not Effect.READ:
            async with self._claim(request) as entry:
                if recorded := await self._recorded_outcome(tool, request, entry):
                    return recorded
                if entry.started_before:
                    reason = f"an earlier attempt of {tool.spec.name} was interrupted, and on this worker {why}"
                    return await self._unknown(tool, request, entry, RawResult(status="unknown", content=reason))
        return ToolOutcome(status="invalid", content=f"Not called: {why}")

    async def _execute(self, call: "ToolExecution") -> ToolOutcome:
        request = call.request
        if call.attempt.tool.spec.effect is Effect.READ:
            return await call.read()
        undoes = request.undo and not request.settle
        # In a later epoch, a request of an earlier one may still arrive: `run_once` decides when the effect starts.
        start = not request.settle and not undoes and not request.epoch
        async with self._claim(request, start=start) as entry:
            if undoes:
                return await call.undo(entry)
            recorded = await self._recorded_outcome(call.attempt.tool, request, entry)
            if recorded and not request.epoch:
                return recorded
            # The recorded outcome may be of an earlier epoch: it is recorded for this one, too.
            outcome = recorded or await (call.settle(entry) if request.settle else call.run_once(entry))
            if outcome.status in ("unknown", "cancelled"):
                return outcome
            first = await entry.finish(outcome)
            return outcome if first == outcome else first.model_copy(update={"adopted": True})

    @asynccontextmanager
    async def _claim(self, request: ToolRequest, *, start: bool = False) -> AsyncIterator[ClaimedEffect]:
        """Hold the claim on the effect of a call during the block."""
        info, effect = activity.info(), await self._effect(request)
        attempt = CallAttempt(f"{info.workflow_run_id}/{info.activity_id}", info.attempt)
        async with self._ledger.claim(effect, thread=calling_thread(), start=start, attempt=attempt) as entry:
            yield entry

    async def _recorded_outcome(self, tool: Tool, request: ToolRequest, entry: ClaimedEffect) -> ToolOutcome | None:
        """Return the outcome that an attempt recorded; unknown if no worker is proven to have recorded it."""
        if entry.doubt:
            return await self._unknown(tool, request, entry, RawResult(status="unknown", content=entry.doubt))
        return entry.outcome.model_copy(update={"adopted": True}) if entry.outcome else None

    async def _unknown(self, tool: Tool, request: ToolRequest, entry: ClaimedEffect, result: RawResult) -> ToolOutcome:
        """Return the outcome of an effect that a person has to resolve."""
        result = await with_settling_notice(result, entry, tool.spec)
        settles_in = result.settles_in if request.settles else None
        return ToolOutcome(status="unknown", content=result.content, cause=result.cause, settles_in=settles_in)

    async def _effect(self, request: ToolRequest) -> PastEffect:
        """Return the effect of a call, as the ledger identifies it."""
        own = activity.info().workflow_run_id or ""
        return PastEffect(
            number=request.number,
            first_run_id=request.first_run_id or await self._chains.first_run_id(calling_thread(), own),
            tool=request.call.name,
            call_digest=request.call.digest,
            key=request.key,
            epoch=request.epoch,
            call=describe_call(request.call),
        )


@dataclass(frozen=True)
class ToolExecution:
    """One attempt at a tool call, by the rules of `holdfast.core.tools.effects` for a second attempt."""

    attempt: Attempt
    outcomes: Outcomes
    request: ToolRequest
    notes: AttemptNotes
    guard: GuardedCall | None = None
    """The call within its middleware; None for no middleware."""

    async def read(self) -> ToolOutcome:
        """Make a call without an effect."""

        async def make() -> RawResult:
            return await self._changed() or await self.attempt.run()

        ended, _ = await self._through(make, "run")
        return await self.outcomes.record(ended)

    async def undo(self, entry: ClaimedEffect) -> ToolOutcome:
        """Undo the effect once it has arrived, or can no longer arrive."""
        await self._lost_effect(entry).require_arrived()
        ended, _ = await self._through(self.attempt.undo, "undo")
        return await self.outcomes.record(ended)

    async def run_once(self, entry: ClaimedEffect) -> ToolOutcome:
        """Run an effect unless an earlier attempt ran it, or may have."""
        lost, repeated = self._lost_effect(entry), entry.started_before or self.request.epoch > 0

        async def make() -> RawResult:
            if repeated:
                earlier_outcome = await lost.earlier_outcome()
                if earlier_outcome is None or not entry.started_before:  # an adopted effect belongs to this epoch
                    await entry.start()
                if earlier_outcome:
                    return earlier_outcome
            # An earlier attempt of an idempotent call may itself have changed what its preview showed.
            if not (repeated and self.attempt.tool.spec.effect is Effect.IDEMPOTENT) and (
                changed := await self._changed()
            ):
                return changed
            ended = await self.attempt.run(entry)
            return await lost.resolve_doubt(ended) if ended.doubt else ended

        ended, made = await self._through(make, "run")
        if not made and repeated:
            ended = await self._resolve_earlier_attempt(ended, lost)
        elif made and ended.status == "unknown" and ended.settles_in is None:  # middleware cancelled it
            ended = await with_settling_notice(ended, entry, self.attempt.tool.spec)
        return await self.outcomes.record(ended)

    async def settle(self, entry: ClaimedEffect) -> ToolOutcome:
        """Determine the outcome of an effect whose run was closed from outside, without running it."""
        lost = self._lost_effect(entry)
        if not entry.started_before and not lost.declared_absent:
            return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} It had not begun.")
        unknown = RawResult(status="unknown", content=f"{CLOSED_EARLY} {OUTCOME_UNKNOWN}")

        async def make() -> RawResult:
            if second_attempt(self.attempt.tool.spec.effect) == "run" or not (lost.declared_absent or self._has_check):
                return await with_settling_notice(unknown, entry, self.attempt.tool.spec)
            explanation = "Its check says that it did not happen." if self._has_check else "It had not begun again."
            return await lost.earlier_outcome() or RawResult(
                status="cancelled", content=f"{CLOSED_EARLY} {explanation}"
            )

        ended, made = await self._through(make, "settle")
        return await self.outcomes.record(ended if made else unknown)

    async def _changed(self) -> RawResult | None:
        """Return the end of a call whose approval is about another state; None if it may run."""
        why = await changed_since(self.attempt, self.request.base) if self.request.base else ""
        return RawResult(status="failed", content=why) if why else None

    @property
    def _has_check(self) -> bool:
        return second_attempt(self.attempt.tool.spec.effect) == "check"

    def _lost_effect(self, entry: ClaimedEffect) -> LostEffect:
        return LostEffect(self.attempt, entry, self.outcomes, self.notes, self.request.epoch)

    async def _resolve_earlier_attempt(self, rejected: RawResult, lost: LostEffect) -> RawResult:
        """Determine the outcome of an earlier attempt at a call that middleware now rejects."""
        spec, rejection = self.attempt.tool.spec, text_of(rejected.content)
        if self._has_check or lost.declared_absent:
            earlier_outcome = await lost.earlier_outcome()
            if earlier_outcome is None or earlier_outcome.status == "failed":
                return rejected
            if earlier_outcome.status == "ok":
                hidden = f"an earlier attempt of {spec.name} took effect; its result is hidden: {rejection}"
                return earlier_outcome.model_copy(update={"content": hidden})
        reason = f"an earlier attempt of {spec.name} was interrupted, and this one was refused: {rejection}"
        return await with_settling_notice(RawResult(status="unknown", content=reason), lost.entry, spec)

    async def _through(self, make: Callable[[], Awaitable[RawResult]], work: ToolWork) -> tuple[RawResult, bool]:
        """Make a call, through the middleware if there is any; return how it ended, and whether it was made."""
        return await self.guard.through(make, work) if self.guard else (await make(), True)


def _lacks_newer(tool: Tool, recorded: str, read: str) -> bool:
    """Whether a run's own note only lacks parameters that its release's tool did not have, which have their defaults.

    A run makes its own calls from the tool as it recorded it, so this tool reads further parameters into them.
    """
    if tool is not update_progress:
        return False
    values = json.loads(recorded)
    return isinstance(values, dict) and exact_json({**tool.spec.defaults, **values}) == read
