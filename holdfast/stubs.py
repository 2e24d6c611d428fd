"""The activities as workflows call them: typed stubs. The implementations of the same names are in `activities/`."""

from temporalio import activity

from holdfast.loop.state import Settled, SettleRequest, Survey, SurveyRequest
from holdfast.run.contracts import (
    AgentRequest,
    Archived,
    ArchiveRequest,
    EffectsRequest,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    LoadedThread,
    Notice,
    Notified,
    PastEffects,
    ThreadRequest,
    ToolOutcome,
    ToolRequest,
)


@activity.defn(name="load_thread")
async def load_thread(request: ThreadRequest) -> LoadedThread:
    """Read where a closed thread stands. Fails for good with RECORD_UNREADABLE or RECORD_CONFLICT."""
    raise NotImplementedError


@activity.defn(name="load_effects")
async def load_effects(request: EffectsRequest) -> PastEffects:
    """Read what a run that was reset has done already. Fails for good with RECORD_CONFLICT."""
    raise NotImplementedError


@activity.defn(name="load_agent")
async def load_agent(request: AgentRequest) -> LoadedAgent:
    """Resolve an agent's name and its workspace. Fails with AGENT_NOT_FOUND or WORKSPACE_NOT_FOUND."""
    raise NotImplementedError


@activity.defn(name="call_llm")
async def call_llm(request: LLMRequest) -> LLMReply:
    """Send the transcript to the LLM. Fails for good with LLM_REJECTED or CONTEXT_TOO_LONG; the error's details then
    hold the `Outage` before.
    """
    raise NotImplementedError


@activity.defn(name="call_tool")
async def call_tool(request: ToolRequest) -> ToolOutcome:
    """Run one tool call by the rules of `holdfast.tools.effects`."""
    raise NotImplementedError


@activity.defn(name="notify")
async def notify(notice: Notice) -> Notified:
    """Tell those whom the worker is configured to tell."""
    raise NotImplementedError


@activity.defn(name="archive")
async def archive(request: ArchiveRequest) -> Archived:
    """Write events into the permanent record. Fails for good with RECORD_CONFLICT or RECORD_UNREADABLE."""
    raise NotImplementedError


@activity.defn(name="survey_workspace")
async def survey_workspace(request: SurveyRequest) -> Survey:
    """See what a loop's files say. Fails for good with AGENT_NOT_FOUND, AGENT_UNFIT or WORKSPACE_NOT_FOUND.

    That ends a loop which has not begun, and blocks one that has.
    """
    raise NotImplementedError


@activity.defn(name="settle_iteration")
async def settle_iteration(request: SettleRequest) -> Settled:
    """Find out what became of an iteration, and leave a trace of it in the files and in git."""
    raise NotImplementedError
