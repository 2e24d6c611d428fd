"""Logs of runs that never ran, for tests and benches of what reads logs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.llm.blocks import TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log import events as ev
from holdfast.core.log.event_log import EventLog, event_line
from tests.support.runs import agent_spec

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)


class WrittenLog:
    """A log that is written event by event.

    Args:
        thread: The thread's id.
        spec: The agent.
        run: Temporal's first run id of the run.
        task: The task.
        started: Further fields of its start.
    """

    def __init__(
        self, thread: str, spec: AgentSpec | None = None, *, run: str = "r-1", task: str = "do it", **started: Any
    ) -> None:
        self.thread = thread
        self.at = BEGAN
        self._log = EventLog()
        self._number = 0
        spec = spec or agent_spec()
        self.add(ev.RunStarted(thread=thread, run_id=run, first_run_id=run, agent=None, **started))
        self.add(ev.UserMessageReceived(content=task, task=True, by="dana"))
        self.add(ev.AgentLoaded(spec=spec, spec_hash="h", workspace="/w"))

    @property
    def events(self) -> Sequence[ev.AgentEvent]:
        """The events so far."""
        return self._log.events

    @property
    def lines(self) -> list[bytes]:
        """Their lines in the record."""
        return [event_line(event) for event in self._log.events]

    def add(self, event: ev.AgentEvent) -> None:
        """Record an event now."""
        self._log.append(event, at=self.at)

    def later(self, **time: float) -> None:
        """Let time pass."""
        self.at += timedelta(**time)

    def reply(self, *tools: str, text: str = "", cost: int | None = None) -> list[int]:
        """Record a reply that calls tools, one second later; return the calls' numbers. `cost` is in nano-dollars."""
        self.later(seconds=1)
        numbers = [self._number + index for index, _ in enumerate(tools, 1)]
        self._number += len(tools)
        calls = [ToolCall(id=f"c{n}", name=tool, arguments="{}") for n, tool in zip(numbers, tools, strict=True)]
        message = AssistantMessage(content=(*([TextBlock(text=text)] if text else []), *calls) if calls else text)
        usage = Usage(prompt_tokens=100, completion_tokens=10)
        replied = ev.LLMReplied(
            message=message, transcript_length=1, usage=usage, finish_reason="stop", llm="m", duration_ms=800, cost=cost
        )
        self.add(replied)
        for number, call in zip(numbers, calls, strict=True):
            self.add(ev.ToolCallRequested(number=number, call=call))
        return numbers

    def run_call(self, number: int, *, request: str = "", content: str = "fine") -> None:
        """Record that a call runs for a second."""
        self.add(ev.ToolCallStarted(number=number, key=f"k{number}", request=request))
        self.later(seconds=1)
        self.add(ev.ToolCallFinished(number=number, status="ok", content=content, duration_ms=900))

    def ask(self, number: int, tool: str = "pay") -> str:
        """Record that people are asked about a call; return the request's id."""
        self.add(ev.VerdictGiven(number=number, verdict="ask", rule="ask pay"))
        request = ApprovalRequest(
            id=str(number),
            kind="approval",
            number=number,
            tool=tool,
            arguments="{}",
            digest="d",
            why="money",
            rule="ask pay",
            asked_at=self.at,
        )
        self.add(ev.ApprovalRequested(request=request))
        return request.id

    def decide(self, request: str, decision: str = "approve", *, reason: str = "") -> None:
        """Record an accepted decision of bob."""
        decided = {"decision": decision, "outcome": "accepted", "by": "bob", "reason": reason}
        self.add(ev.DecisionReceived.model_validate({"request": request, **decided}))

    def finish(self, outcome: ev.RunOutcome = "completed", *, result: str = "", cause: str = "") -> None:
        """Record the run's end."""
        self.add(ev.RunFinished(outcome=outcome, result=result, cause=cause))


def three_weeks(thread: str = "invoice-7", *, waits: int = 20, run: str = "r-1", **started: Any) -> WrittenLog:
    """Return the log of a run that waits for people that often, for three weeks in all."""
    log = WrittenLog(thread, run=run, **started)
    for _ in range(waits):
        (read,) = log.reply("look")
        log.run_call(read)
        (pay,) = log.reply("pay")
        request = log.ask(pay)
        log.later(days=21 / waits)
        log.decide(request)
        log.run_call(pay, request=request)
    log.reply(text="Paid.")
    log.finish(result="Paid.")
    return log


def many_steps(thread: str, steps: int) -> Iterator[bytes]:
    """Yield the lines of a run with that many steps, each with a tool call."""
    log = WrittenLog(thread)
    for _ in range(steps):
        (number,) = log.reply("look", text="I look again. " * 10)
        log.add(ev.VerdictGiven(number=number, verdict="allow", rule="allow look"))
        log.run_call(number, content="a line of a file\n" * 60)
    log.finish()
    yield from log.lines
