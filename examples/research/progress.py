"""The research demo's output for the events of its runs, a line for each."""

from rich.console import Console
from rich.text import Text

from holdfast import (
    AgentEvent,
    ApprovalRequested,
    BudgetExtended,
    BudgetLow,
    BudgetSpent,
    DecisionReceived,
    DormancyBegan,
    LLMReplied,
    ReplyRejected,
    RunBlocked,
    RunFinished,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
)
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.effects import describe_call
from holdfast.core.tools.subagents import RUN_AGENT, read_run_agent
from holdfast.core.tools.triggers import WakeTrigger
from holdfast.examples.shared import progress


class Progress(progress.Progress):
    """Prints the events of a tree of runs.

    Args:
        console: The output; coloured on a terminal, otherwise plain text.
        root: The thread of the root.
    """

    def __init__(self, console: Console, root: str) -> None:
        super().__init__(console)
        self._root = root
        self._calls: dict[tuple[str, int], ToolCall] = {}

    def event(self, thread: str, event: AgentEvent) -> None:
        """Print one event of a run, if it is of interest to a viewer."""
        who = "lead" if thread == self._root else f"agent {thread.removeprefix(self._root)}"
        match event:
            case LLMReplied(message=message) if message and message.text and message.tool_calls:
                self.report(who, f"“{message.text}”")
            case ToolCallRequested():
                self._calls[thread, event.number] = event.call
                if event.call.name != RUN_AGENT:
                    self.report(who, describe_call(event.call))
            case ToolCallFinished() if event.status != "ok" or event.adopted:
                self._outcome(who, self._calls[thread, event.number], event)
            case SubagentStarted():
                request = read_run_agent(self._calls[thread, event.number])
                how = "in the background" if event.background else ""
                self.report(who, f"runs {event.agent} {event.thread}: {request.task if request else ''}", note=how)
            case SubagentEnded():
                tokens = f", {event.cost.tokens:,} tokens" if event.cost else ""
                self.report(who, f"has the answer of {event.thread}", note=f"{event.steps} steps{tokens}")
            case DormancyBegan():
                self.report(who, f"sleeps {_purpose(event.trigger)}", style="bold")
            case _:
                self._by_people(who, event)

    def _outcome(self, who: str, call: ToolCall, event: ToolCallFinished) -> None:
        if event.adopted:
            outcome = "its check found the effect, and it is not run again"
            self.report(who, f"{call.name}: {outcome}", style="bold")
        else:
            self.report(who, f"{call.name} {event.status}: {event.text}", style="yellow")

    def _by_people(self, who: str, event: AgentEvent) -> None:
        """Print requests to people, their decisions, and the end of the run."""
        match event:
            case TaskRefined():
                self.report(who, f"is to do less: {event.text}", style="bold")
            case BudgetLow():
                self.report(who, f"the budget is low: {event.spent} of {event.allowed} {event.limit}", style="yellow")
            case BudgetSpent():
                self.report(who, f"the budget has ended ({event.limit})", style="yellow")
            case BudgetExtended():
                self.report(who, f"the budget is extended by {event.more.words}", style="bold")
            case ApprovalRequested(request=request):
                self.report("policy", f"request {request.id}: may {request.tool} run?", note=request.why)
            case DecisionReceived():
                self.report("person", f"{event.decision} {event.request} by {event.by}: {event.outcome}")
            case ReplyRejected(reason=why) | RunBlocked(message=why):
                self.report(who, why, style="red")
            case RunFinished() if who == "lead":
                self.report(who, event.outcome, style="bold")
                self.text(event.result)
            case _:
                pass

    def text(self, text: str) -> None:
        """Print a text below the last line, indented."""
        for line in text.rstrip().splitlines():
            self._console.print(Text(f"{'':18}{line.rstrip()}"), soft_wrap=True)


def _purpose(trigger: WakeTrigger) -> str:
    return f"until {trigger.words}" if trigger.kind == "time" else f"and waits for {trigger.words}"
