"""The calls and sleeps of an agent run that are under way, and the commands that start and stop them.

1. Each call and sleep has an id, counted through the whole chain of Temporal runs: it names the call's request.
2. The result of a call that was given up is ignored. A tool call is never given up: its effect may have
   happened, so a stopped one is still waited for. A poll has no effect, and is given up when its wait has ended.
3. A call that fails as a local activity is made again as an ordinary one, unless it failed for good.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.run.activities import activity_of
from holdfast.run.children import StartChildren
from holdfast.run.commands import Call, Command, Failure, Request, Result, Sleep, Stop
from holdfast.run.contracts import NOT_SEALED, ArchiveRequest, LLMRequest, Notice, ToolRequest
from holdfast.run.state import RunState
from holdfast.seals.orders import Answer, order_name
from holdfast.seals.seals import Unsealed, is_unsealed


class OpenCalls:
    """What is under way. Not part of `RunState`, because it concerns this Temporal run only: the next one starts
    without open calls, and makes those anew that it needs. Only the count of ids is handed over.

    Args:
        thread: The workflow id.
        first_run_id: Temporal's first execution run id.
        orders: How many ids the chain of Temporal runs has used so far.
    """

    def __init__(self, *, thread: str, first_run_id: str, orders: int) -> None:
        self.orders = orders
        self._thread, self._first_run_id = thread, first_run_id
        self._open: dict[int, Call | Sleep] = {}
        self._commands: list[Command] = []
        self._slow: set[str] = set()
        """Tools of which a call took longer than a local activity may."""
        self._abandoned: set[int] = set()
        """Tool calls that were stopped because the history is too long to wait for them."""

    def commands(self) -> Sequence[Command]:
        """Return the commands since the last time, in order."""
        commands, self._commands = self._commands, []
        return commands

    def under_way(self, *kinds: type[Request]) -> list[Call]:
        """The open calls whose request is of one of these kinds, oldest first."""
        return [call for call in self._open.values() if isinstance(call, Call) and isinstance(call.request, kinds)]

    @property
    def verifying(self) -> bool:
        """Whether `verify` tools are under way."""
        return any(not call.number for call in self.under_way(ToolRequest))

    def get(self, call_id: int) -> Call | Sleep | None:
        """The open call or sleep of that id; None if it has ended or was given up."""
        return self._open.get(call_id)

    def close(self, call_id: int) -> Call | Sleep | None:
        """Remove a call or sleep that has ended, and return it; None if it was given up before."""
        return self._open.pop(call_id, None)

    # Starting.

    def call(self, request: Request, state: RunState, *, number: int = 0) -> None:
        """Make a call, as a local activity where the table of activities allows it.

        Args:
            request: What to ask for.
            state: The run's, for the limits that its agent sets.
            number: The number of a tool call in the thread; 0 for anything else.
        """
        slow = isinstance(request, ToolRequest) and request.call.name in self._slow
        seconds = 0 if slow else activity_of(request).local_seconds(request, state)
        self._begin(self._named(request, number, seconds=seconds))

    def call_again(self, call: Call) -> None:
        """Make a local activity's call again as an ordinary activity: it took too long, or needs to be retried."""
        if isinstance(call.request, ToolRequest):
            self._slow.add(call.request.call.name)
        self._begin(self._named(call.request, call.number))

    def wake_at(self, until: datetime | None, *, now: datetime) -> None:
        """Have one sleep under way, until that time; none for None."""
        for call in [call for call in self._open.values() if isinstance(call, Sleep)]:
            if call.until == until:
                return
            self.give_up(call.id)
        if until:
            # Never zero: a clock that lags would wake the run over and over within one workflow task.
            self._begin(Sleep(self._next_id(), until, max(0.01, (until - now).total_seconds())))

    def _named(self, request: Request, number: int, *, seconds: float = 0) -> Call:
        call_id = self._next_id()
        name = order_name(workflow_id=self._thread, first_run_id=self._first_run_id, number=call_id)
        return Call(call_id, request.model_copy(update={"order": name}), number, seconds)

    def _begin(self, call: Call | Sleep) -> None:
        self._open[call.id] = call
        self._commands.append(call)

    def _next_id(self) -> int:
        self.orders += 1
        return self.orders

    # Stopping.

    def give_up(self, call_id: int) -> None:
        """Stop a call or sleep, and wait for nothing of it."""
        call = self._open.pop(call_id)
        asked = [command for command in self._commands if command is not call]
        if len(asked) == len(self._commands):
            asked.append(Stop(call_id))
        self._commands = asked  # a call that nobody has asked for yet needs no stop

    def give_up_replies(self) -> None:
        """Give up the LLM call under way, unless it is for a context compaction."""
        for call in self.under_way(LLMRequest):
            if isinstance(call.request, LLMRequest) and not call.request.compacting:
                self.give_up(call.id)

    def give_up_llm(self) -> None:
        """Give up the LLM call under way, of any kind."""
        for call in self.under_way(LLMRequest):
            self.give_up(call.id)

    def give_up_polls(self, *, but: Collection[int]) -> None:
        """Give up the polls of all calls but these."""
        for call in self.under_way(ToolRequest):
            if isinstance(call.request, ToolRequest) and call.request.poll and call.number not in but:
                self.give_up(call.id)

    def cancel(self) -> None:
        """Stop tool calls and wait for them. Let notices, starts of sub-agents and writes to the record finish. Give up
        all else.
        """
        for call in list(self._open.values()):
            if isinstance(call, Sleep) or not isinstance(
                call.request, ToolRequest | Notice | ArchiveRequest | StartChildren
            ):
                self.give_up(call.id)
            elif isinstance(call.request, ToolRequest):
                self._commands.append(Stop(call.id))

    def abandon(self, *, archiving: bool) -> None:
        """Stop tool calls, once each, and give up the other calls: there is no time left to wait for them.

        Args:
            archiving: Give up a write to the permanent record as well.
        """
        for call in [call for call in self._open.values() if isinstance(call, Call)]:
            if isinstance(call.request, ArchiveRequest) and not archiving:
                continue
            if not isinstance(call.request, ToolRequest):
                self.give_up(call.id)
            elif call.id not in self._abandoned:
                self._abandoned.add(call.id)
                self._commands.append(Stop(call.id))

    # Answers.

    def refuse_answer(self, call_id: int, result: Result | Unsealed | None) -> Failure | None:
        """Return why a result does not count as the answer to a call; None if it does, or if the call is not open.

        An answer counts if one of our own processes sealed it, for this very call.
        """
        call = self._open.get(call_id)
        if not isinstance(call, Call):
            return None
        if is_unsealed(result):
            return Failure(NOT_SEALED, str(result))
        if not isinstance(result, Answer) or not isinstance(result, activity_of(call.request).answer):
            return Failure(NOT_SEALED, f"the answer is {'empty' if result is None else 'of another kind'}")
        if result.answers != call.request.order:
            why = f"the answer belongs to call {result.answers!r}, and not to {call.request.order!r}"
            return Failure(NOT_SEALED, why)
        return None
