"""Signs the results of LLM and tool calls with this node's key."""

from typing import Any

from temporalio import activity

from holdfast.activities.calling_run import Chains
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.signed_results import (
    Statement,
    outcome_statement,
    poll_statement,
    reply_statement,
    sign_result,
    summary_statement,
)
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.waits.polling import digest_of_result


class ResultSigner:
    """Signs the results of activities.

    Args:
        key: The node's key.
        chains: Maps a Temporal run to its chain.
    """

    def __init__(self, key: SigningKey, chains: Chains) -> None:
        self._key = key
        self._chains = chains

    async def sign(self, request: ActivityRequest, result: ActivityResult) -> str:
        """Return the node's signature of the result of the current activity; empty if it signs none of this kind."""
        info, first_run_id = activity.info(), ""
        thread = info.workflow_id or ""
        if isinstance(request, LLMRequest):
            first_run_id = await self._chains.first_run_id(thread, info.workflow_run_id or "")
        statement = statement_of(request, result, thread=thread, first_run_id=first_run_id)
        return "" if statement is None else sign_result(self._key, statement, attempt=info.attempt)


def statement_of(request: Any, result: Any, *, thread: str, first_run_id: str) -> Statement | None:
    """Return what a node signs of an activity's result; None if it signs no results of this kind.

    Args:
        request: The activity's request.
        result: Its result.
        thread: The thread of the calling run.
        first_run_id: The first run id of its chain, for an LLM call.
    """
    match request, result:
        case LLMRequest(), LLMReply():
            prompt = request.transcript.digest
            of = summary_statement if request.compacting else reply_statement
            return of(result, thread=thread, first_run_id=first_run_id, prompt=prompt)
        case ToolRequest(number=0), ToolOutcome():
            return None  # a tool that the run calls by itself: its event has no place for a signature
        case ToolRequest(poll=0), ToolOutcome():
            return outcome_statement(result, thread=thread, key=request.key, epoch=request.epoch, undo=request.undo)
        case ToolRequest(), ToolOutcome():
            return poll_statement(
                thread=thread,
                key=request.key,
                poll=request.poll,
                status=result.status,
                seen=digest_of_result(result.content),
                duration_ms=result.duration_ms,
            )
        case _:
            return None
