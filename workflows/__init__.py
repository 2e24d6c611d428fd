"""The workflows a worker runs. They import `holdfast` and nothing that does I/O."""

from holdfast.workflows.activity_call import ActivityCallWorkflow
from holdfast.workflows.agent_loop import AgentLoopWorkflow
from holdfast.workflows.agent_run import AgentRunWorkflow
from holdfast.workflows.scheduled_run import ScheduledRunWorkflow

WORKFLOWS = [AgentRunWorkflow, AgentLoopWorkflow, ScheduledRunWorkflow, ActivityCallWorkflow]
