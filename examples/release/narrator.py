"""What the demo prints while it runs: a line for everything that happens, with the seconds since the start."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from holdfast.describe import describe_call, one_line
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    LLMReplied,
    ReconcileRequested,
    ReplyRejected,
    RunFinished,
    RunParked,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from holdfast.messages import ToolCall

_STYLES = {"kill": "bold red", "worker": "cyan", "person": "bold yellow", "policy": "yellow", "server": "blue"}


class Narrator:
    """Tells a run, line by line.

    Args:
        console: Where to; on a terminal in colour, elsewhere as plain text.
        scripted: Whether the scripted LLM drives the run, whatever the agent calls it.
    """

    def __init__(self, console: Console, *, scripted: bool) -> None:
        self._scripted = scripted
        self._console = console
        self._begun = time.monotonic()
        self._step = 0
        self._calls: dict[int, ToolCall] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def say(self, who: str, what: str, *, note: str = "", style: str = "", whole: bool = False) -> None:
        """Print one line: the time, who acts, what happens, and in grey what else there is to know.

        What does not fit the line is cut, unless `whole` is true.
        """
        line = Text.assemble((f"{self.elapsed:6.1f}  ", "dim"), (f"{who:<8}", _STYLES.get(who, "green")), "  ")
        room = self._console.width - line.cell_len - (len(note) + 2 if note else 0)
        line.append(what if whole else one_line(what, max(30, room)), style=style)
        line.append(f"  {note}" if note else "", style="dim")
        self._console.print(line, soft_wrap=True)

    def gap(self) -> None:
        """Print an empty line: another scene begins."""
        self._console.print()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is being waited for; on a terminal it moves."""
        self.say("…", what, style="dim")
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(Text(what, style="dim")):
            yield

    def event(self, event: AgentEvent) -> None:
        """Tell one event of the run, if it means something to a person who watches."""
        match event:
            case AgentLoaded(spec=spec):
                llm = "scripted LLM" if self._scripted else spec.llm
                self.say("run", f"agent {spec.name}: {len(spec.tools)} tools, {len(spec.policy.rules)} rules, {llm}")
            case LLMReplied(message=message):
                self._step += 1
                if message and message.text and message.tool_calls:
                    self.say(f"step {self._step}", f"“{message.text}”")
            case ToolCallRequested():
                self._calls[event.number] = event.call
            case VerdictGiven():
                self.say(f"step {self._step}", describe_call(self._calls[event.number]), note=event.rule)
            case ToolCallFinished():
                name = self._calls[event.number].name
                if event.adopted:
                    self.say("tool", f"{name} is not run again: its check found it done, and the result is adopted")
                status = "" if event.status == "ok" else f" {event.status}"
                self.say("tool", f"{name}{status}: {event.content}", style="bold" if event.adopted else "")
            case ApprovalRequested(request=request) | ReconcileRequested(request=request):
                question = "may it run?" if request.kind == "approval" else "did it happen?"
                call = describe_call(self._calls[request.number])
                self.say("policy", f"request {request.request}: {call} {question}", note=request.why)
            case DecisionReceived():
                self.say("person", f"{event.decision} {event.request} by {event.by}: {event.outcome}")
            case ReplyRejected(reason=why) | RunParked(message=why):
                self.say("run", why, style="red")
            case RunFinished():
                self.say("run", event.outcome, style="bold")
                for line in event.result.splitlines():
                    self._console.print(Text(f"{'':18}{line}"), soft_wrap=True)
            case _:
                pass
