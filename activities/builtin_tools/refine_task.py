"""`refine_task`: the tool with which an agent asks people to change its own task.

The run carries out its calls (`holdfast.run.refining`), and people approve each of them: this function only says
whether a call could be carried out.
"""

from dataclasses import replace

from holdfast.authority.refinements import RefinementKind, read_refinement
from holdfast.tools.decorator import Tool, tool


def refine_task_tool() -> Tool:
    """Build the tool of an agent with `Agent(refines=True)`."""

    @tool(effect="idempotent", trust="agent")
    def refine_task(kind: RefinementKind, text: str) -> str:
        """Ask people to change your task. Nothing changes unless they approve.

        Use it where the task as given cannot or should not be done as it stands: part of it turned out to be done or
        impossible (narrow), something else is needed instead (rescope), or it states something that is not so
        (correct). Do not use it to report progress, or to ask a question. Once approved, the refinement is part of the
        task from then on.

        Args:
            kind: narrow: less than before; rescope: something else instead; correct: a fact in the task was wrong.
            text: The task as it is from now on, or what is different: complete, in a few sentences.
        """
        read = read_refinement({"kind": kind, "text": text, "by": "agent"})
        return read[1] if isinstance(read, tuple) else "it can be carried out, once people approve"

    return replace(refine_task, spec=refine_task.spec.model_copy(update={"kind": "runtime"}))
