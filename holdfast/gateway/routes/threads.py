"""The routes that read threads: lists, states, open requests, messages."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic.json_schema import SkipJsonSchema

from holdfast.client.listing import list_page
from holdfast.client.pending import list_pending
from holdfast.client.showing import show_thread
from holdfast.client.threads import JSON, Threads
from holdfast.client.trees import pending_of_tree
from holdfast.core.base.canonical import MAX_INTEGER
from holdfast.core.run.state.state import Status
from holdfast.gateway.answers import (
    ListedThread,
    MessagesPage,
    PendingOf,
    PendingOfAll,
    ThreadsPage,
    Unanswered,
)
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.bodies import AGENT_NAME
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import ALWAYS, ON_THREAD, problems
from holdfast.gateway.http.pages import PageLimit, note, take
from holdfast.gateway.http.problems import problem_of


def reading_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """Return the routes that read threads. Without a worker, they read the recorded history.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
    """
    routes = APIRouter()
    lists, reads = (Depends(authenticator.for_scope(scope)) for scope in ("list", "read"))
    reads_one, reads_transcript = (Depends(authenticator.for_thread(scope)) for scope in ("read", "transcript"))

    @routes.get("/threads", response_model=ThreadsPage, responses=problems(*ALWAYS))
    async def list_threads(
        caller: Annotated[Caller, lists],
        status: Annotated[Status | SkipJsonSchema[None], Query(description="Only threads with this status.")] = None,
        agent: Annotated[str, Query(pattern=AGENT_NAME, description="Only threads of this agent.")] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 50,
        cursor: Annotated[str, Query(max_length=2_000, description="The `next` of the page before.")] = "",
    ) -> ThreadsPage:
        """List threads, a page at a time. Temporal's index of threads lags a little behind."""
        rows, following = await list_page(
            threads, status=status, agent=agent, prefixes=caller.threads, limit=limit, cursor=cursor
        )
        return ThreadsPage(threads=[ListedThread.model_validate(row) for row in rows], next=following or None)

    @routes.get("/threads/{thread}", response_model=dict[str, Any], responses=problems(*ON_THREAD))
    async def get_thread(access: Annotated[Access, reads_one]) -> JSON:
        """Get the state of a thread, as `starter.py show --json` prints it."""
        return (await show_thread(threads, access.thread, note=note)).view

    @routes.get("/threads/{thread}/pending", response_model=PendingOf, responses=problems(*ON_THREAD))
    async def list_pending_of_thread(access: Annotated[Access, reads_one]) -> PendingOf:
        """List the open requests of a thread and of its sub-agents, each with the digest that a decision has to name.

        A sub-agent's request has its `thread`, to which the decision is sent, and the `path` to it.
        """
        pending, unread = await pending_of_tree(threads, access.thread, note=note)
        unanswered = [Unanswered(thread=name, why=str(problem_of(error, name))) for name, error in unread.items()]
        return PendingOf(pending=pending, unanswered=unanswered)

    @routes.get("/pending", response_model=PendingOfAll, responses=problems(*ALWAYS))
    async def list_pending_requests(caller: Annotated[Caller, reads]) -> PendingOfAll:
        """List the open requests of all threads. Temporal's index of threads lags a little behind."""
        pending, unread = await list_pending(threads, prefixes=caller.threads)
        unanswered = [Unanswered(thread=each.thread, why=str(problem_of(each.error, each.thread))) for each in unread]
        return PendingOfAll(pending=pending, unanswered=unanswered)

    @routes.get("/threads/{thread}/messages", response_model=MessagesPage, responses=problems(*ON_THREAD))
    async def list_messages(
        access: Annotated[Access, reads_transcript],
        after: Annotated[int, Query(ge=-1, le=MAX_INTEGER, description="The `next` of the page before.")] = -1,
        limit: PageLimit = 100,
        active: Annotated[bool, Query(description="Only what the LLM sees now, after context compaction.")] = False,
    ) -> MessagesPage:
        """List the messages between people, agent and tools, oldest first. They are numbered from 0."""
        messages = threads.messages(access.thread, active=active, note=note)
        page, more = await take(messages, limit=limit, skip=after + 1)
        return MessagesPage(messages=page, next=after + len(page) if more else None)

    return routes
