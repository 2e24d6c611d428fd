"""The release demo's output for the events of its run."""

from rich.console import Console
from rich.text import Text

from holdfast import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    LLMReplied,
    ReconcileRequested,
    ReplyRejected,
    RunBlocked,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.effects import describe_call
from holdfast.examples.shared import progress


class Progress(progress.Progress):
    """Prints the events of a run, line by line.

    Args:
        console: The output; coloured on a terminal, otherwise plain text.
        scripted: Whether the scripted LLM drives the run, regardless of the agent's `llm`.
    """

    def __init__(self, console: Console, *, scripted: bool) -> None:
        super().__init__(console)
        self._scripted = scripted
        self._step = 0
        self._calls: dict[int, ToolCall] = {}

    def event(self, event: AgentEvent) -> None:
        """Print one event of the run, if it is of interest to a viewer."""
        match event:
            case AgentLoaded(spec=spec):
                llm = "scripted LLM" if self._scripted else spec.llm
                self.report("run", f"agent {spec.name}: {len(spec.tools)} tools, {len(spec.policy.rules)} rules, {llm}")
            case LLMReplied(message=message):
                self._step += 1
                if message and message.text and message.tool_calls:
                    self.report(f"step {self._step}", f"“{message.text}”")
            case ToolCallRequested():
                self._calls[event.number] = event.call
            case VerdictGiven():
                self.report(f"step {self._step}", describe_call(self._calls[event.number]), note=event.rule)
            case ToolCallFinished():
                name = self._calls[event.number].name
                if event.adopted:
                    self.report("tool", f"{name} is not run again: its check found the effect and adopted the result")
                status = "" if event.status == "ok" else f" {event.status}"
                self.report("tool", f"{name}{status}: {event.text}", style="bold" if event.adopted else "")
            case ApprovalRequested(request=request) | ReconcileRequested(request=request):
                question = "may it run?" if request.kind == "approval" else "did it happen?"
                call = describe_call(self._calls[request.number])
                self.report("policy", f"request {request.id}: {call} {question}", note=request.why)
            case DecisionReceived():
                self.report("person", f"{event.decision} {event.request} by {event.by}: {event.outcome}")
            case ReplyRejected(reason=why) | RunBlocked(message=why):
                self.report("run", why, style="red")
            case RunFinished():
                self.report("run", event.outcome, style="bold")
                for line in event.result.splitlines():
                    self._console.print(Text(f"{'':18}{line}"), soft_wrap=True)
            case _:
                pass
