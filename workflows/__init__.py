"""The workflows a worker runs. They import `holdfast` and nothing that does I/O."""

from holdfast.workflows.agent_loop import AgentLoopWorkflow
from holdfast.workflows.agent_run import AgentRunWorkflow

WORKFLOWS = [AgentRunWorkflow, AgentLoopWorkflow]
