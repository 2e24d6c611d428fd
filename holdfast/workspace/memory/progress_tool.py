"""`update_progress`: the tool that keeps progress.txt, for the LLM and for the run itself
(`holdfast.core.run.rules.closing_work`).

It commits nothing: an ordinary run may work in a person's repository. Fields are set, and an entry
is added once, so a second attempt changes nothing.
"""

from holdfast.core.memory import progress
from holdfast.core.run.state.progress import NOTED_CALLS
from holdfast.core.tools.decorator import ToolContext, tool
from holdfast.core.tools.not_done import REPEATABLE
from holdfast.workspace.memory.files import PROGRESS, MemoryFiles


@tool(effect="idempotent", trust="agent", not_done_on=REPEATABLE, files=(PROGRESS,))
def update_progress(
    status: str = "",
    next_action: str = "",
    goal: str = "",
    context: str = "",
    last_step: str = "",
    calls: tuple[str, ...] = (),
    *,
    call: ToolContext,
) -> str:
    """Say in progress.txt where the work stands, for those who continue it. What you leave out stays as it is.

    Args:
        call: Filled in by Holdfast.
        status: What is done, and what is not.
        next_action: What to do next.
        goal: What the work is for, if that has changed.
        context: What one has to know to continue: files, decisions, what did not work.
        last_step: Leave it out: the run fills it in when it begins and when it ends.
        calls: Leave it out: the run fills it in.
    """
    fields = {"status": status, "next_action": next_action, "goal": goal, "context": context, "last_step": last_step}

    def edit(text: str | None) -> str:
        text = progress.set_thread(text, call.at, thread=call.thread, **fields)
        for line in calls[:NOTED_CALLS]:
            text = progress.add_entry(text, progress.call_entry(line, call.at, thread=call.thread))
        return text

    MemoryFiles(call.workspace).change(PROGRESS, edit)
    return f"Updated {PROGRESS}"
