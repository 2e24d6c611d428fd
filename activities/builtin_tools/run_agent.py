"""`run_agent` and `agent_result`: the tools with which an agent runs other agents.

The run carries out their calls (`holdfast.run.subagents`): no activity does, and these functions never run.
"""

from dataclasses import replace

from holdfast.tools.decorator import Tool, tool


def subagent_tools() -> list[Tool]:
    """Build the tools of an agent with `Agent(subagents=(…))`."""

    @tool(effect="read", trust="web")
    def run_agent(agent: str, task: str, background: bool = False) -> str:
        """Give a task to another agent, and read its final answer.

        It works in a thread of its own, in the same workspace, and sees nothing of this conversation: write everything
        that it needs into the task. To run several at the same time, call this several times in one reply. People
        decide on what it asks approval for; you cannot.

        Args:
            agent: The name of the agent.
            task: The complete task.
            background: Return as soon as it has started; `agent_result` reads its answer later. Agents that still run
                when you give your own final answer are cancelled.
        """
        raise NotImplementedError("the run carries this out")

    @tool(effect="read", trust="web")
    def agent_result(thread: str) -> str:
        """Wait until an agent that you run in the background has ended, and read its final answer.

        Args:
            thread: The id of its thread, as `run_agent` returned it.
        """
        raise NotImplementedError("the run carries this out")

    return [_by_the_run(each) for each in (run_agent, agent_result)]


def _by_the_run(made: Tool) -> Tool:
    return replace(made, spec=made.spec.model_copy(update={"kind": "runtime"}))
