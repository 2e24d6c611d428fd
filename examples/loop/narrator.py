"""What the loop demo prints of its iterations: a line for each call, with the beginning of its result."""

from rich.console import Console

from examples.loop.watch import JSON
from examples.stage import narrator
from holdfast.base.text import one_line
from holdfast.llm.messages import ToolCall
from holdfast.log.events import AgentEvent, ReplyRejected, RunBlocked, RunFinished, ToolCallFinished, ToolCallRequested
from holdfast.run.details import describe_call

RESULT = 46
"""Characters that are shown of a result."""


class Narrator(narrator.Narrator):
    """Tells a loop, line by line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._calls: dict[tuple[int, int], ToolCall] = {}
        self._outcomes: dict[int, str | None] = {}

    def news(self, iterations: list[JSON], events: list[tuple[int, AgentEvent]]) -> None:
        """Tell what is new, in the order in which it happened.

        Args:
            iterations: All of them, as the loop has them.
            events: The new ones, with the number of their iteration.
        """
        for each in iterations:
            number, outcome = each["number"], each["outcome"]
            if number not in self._outcomes:
                self.gap()
                self.say("loop", f"iteration {number}: {each['task'] or 'write the plan'}", style="bold")
                self._outcomes[number] = None
            for event in (event for of, event in events if of == number):
                self._event(number, event)
            if outcome and not self._outcomes[number]:
                style = "" if outcome == "completed" else "red"
                self.say("loop", f"iteration {number}: {outcome}. {each['explanation']}", style=style)
                self._outcomes[number] = outcome

    def _event(self, number: int, event: AgentEvent) -> None:
        match event:
            case ToolCallRequested():
                self._calls[number, event.number] = event.call
            case ToolCallFinished():
                call = describe_call(self._calls[number, event.number])
                lines = (line for line in event.content.splitlines() if len(line) > len("---"))
                result = one_line(next(lines, ""), RESULT)
                self.say("agent", call, note=result if event.status == "ok" else f"{event.status}: {result}")
            case ReplyRejected(reason=why) | RunBlocked(message=why):
                self.say("agent", why, style="red")
            case RunFinished():
                self.say("agent", f"“{event.result}”" if event.outcome == "completed" else event.outcome)
            case _:
                pass
