"""The current details of a loop in the Web UI, in Markdown."""

from holdfast.core.base.text import one_line, plain, quoted
from holdfast.core.loop.state import Iteration, LoopState
from holdfast.core.run.views.web_ui import SHOWN_REQUESTS, WHO, blocked_details, budget_details


def loop_details(state: LoopState) -> str:
    """Describe a loop in Markdown: its task, its last iterations, and the signals that steer it."""
    tasks = f"{state.done} tasks done, {state.open} open"
    lines = [f"**{state.status.replace('_', ' ')}** · iteration {state.count} · {tasks}"]
    if state.task:
        lines += ["", quoted(state.task)]
    if state.paused:
        why = f": {plain(state.paused.reason)}" if state.paused.reason else ""
        lines += ["", f"### Paused by {plain(state.paused.by)}{why}", "", "To resume it, send the signal `resume` with"]
        lines += ["", WHO]
    if state.blocked:
        lines += blocked_details(state.blocked)
    if budget := budget_details(state.account):
        lines += ["", *budget]
    if state.recent:
        lines += ["", *(_iteration(each) for each in reversed(state.recent[-SHOWN_REQUESTS:]))]
    return "\n".join(lines)


def _iteration(iteration: Iteration) -> str:
    status = iteration.outcome or "running"
    why = f" ({one_line(iteration.explanation)})" if iteration.explanation else ""
    return f"- `{iteration.thread}` {status}: {plain(iteration.task or 'write the plan')}{plain(why)}"
