"""The loop demo's output for its iterations: a line for each call, with the beginning of its result."""

from rich.console import Console

from holdfast import AgentEvent, ReplyRejected, RunBlocked, RunFinished, ToolCallFinished, ToolCallRequested
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.effects import describe_call
from holdfast.examples.loop.watch import JSON
from holdfast.examples.shared import progress

RESULT = 46
"""Characters to show of a result."""


class Progress(progress.Progress):
    """Prints the progress of a loop, line by line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._calls: dict[tuple[int, int], ToolCall] = {}
        self._outcomes: dict[int, str | None] = {}

    def news(self, iterations: list[JSON], events: list[tuple[int, AgentEvent]]) -> None:
        """Print new iterations, events and outcomes in the order in which they happened.

        Args:
            iterations: All iterations in the loop's state.
            events: The new events, with the number of their iteration.
        """
        for each in iterations:
            number, outcome = each["number"], each["outcome"]
            if number not in self._outcomes:
                self.gap()
                self.report("loop", f"iteration {number}: {each['task'] or 'write the plan'}", style="bold")
                self._outcomes[number] = None
            for event in (event for of, event in events if of == number):
                self._event(number, event)
            if outcome and not self._outcomes[number]:
                style = "" if outcome == "completed" else "red"
                self.report("loop", f"iteration {number}: {outcome}. {each['explanation']}", style=style)
                self._outcomes[number] = outcome

    def _event(self, number: int, event: AgentEvent) -> None:
        match event:
            case ToolCallRequested():
                self._calls[number, event.number] = event.call
            case ToolCallFinished():
                call = describe_call(self._calls[number, event.number])
                lines = (line for line in event.text.splitlines() if len(line) > len("---"))
                result = one_line(next(lines, ""), RESULT)
                self.report("agent", call, note=result if event.status == "ok" else f"{event.status}: {result}")
            case ReplyRejected(reason=why) | RunBlocked(message=why):
                self.report("agent", why, style="red")
            case RunFinished():
                self.report("agent", f"“{event.result}”" if event.outcome == "completed" else event.outcome)
            case _:
                pass
