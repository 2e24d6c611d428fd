"""The routes that fork threads and start their tasks again. Both need the scopes `fork` and `start`.

1. The caller needs access to the original, and the right to start a thread with the new id.
2. The caller is the requester of the new thread, which inherits no authority from the original. A fork is judged at
   least as strictly as the original, with any agent; callers cannot select an LLM.
3. `id` names the new thread: a repeated request returns the same fork. Without it, a repeated request forks again.
"""

import json
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict, Field, field_validator, model_validator

from holdfast.client.forks import fork, new_fork_id
from holdfast.client.restarts import restart
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.core.authority.conditions import loops
from holdfast.core.authority.policy import Policy
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.errors import PositionInvalid, TaskInvalid, ThreadExists, ThreadIdInvalid
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.bodies import AGENT_NAME, Body, ContextBody, read_body
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import LOCATION, ON_THREAD, body_of, problems
from holdfast.gateway.http.problems import HTTPProblem, ResponseBody
from holdfast.gateway.routes.starts import own_id

POLICY_CHARS = 20_000
"""The longest policy in a request: it judges every call, within the time of a workflow task."""

_Message = Field(default=None, min_length=1, max_length=MAX_TEXT_BYTES)


class RestartBody(Body):
    """The options of a restart."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "refund-4711-again"}]})

    id: str | None = Field(default=None, min_length=1, max_length=200)
    """The new thread's id; null for a new one that begins with the old one's."""
    agent: str | None = Field(default=None, pattern=AGENT_NAME)
    """Another agent; null for the same."""
    task: str | None = _Message
    """Another task; null for the same."""
    context: ContextBody = None
    """Another typed context; null for the one that the thread was started with."""


class ForkBody(Body):
    """The point at which to fork a thread, and the options of the fork."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at": 40, "say": "Try the other branch."}]})

    at: int | None = Field(default=None, ge=1, le=1_000_000_000, examples=[40])
    """The position of the last event that the fork has; null for the thread's last."""
    id: str | None = Field(default=None, min_length=1, max_length=200)
    """The fork's id; null for a new one that begins with the original's."""
    say: str | None = _Message
    """The fork's first message; null for none."""
    edit_message: str | None = _Message
    """A replacement for the last message from a person up to `at`; null for none."""
    agent: str | None = Field(default=None, pattern=AGENT_NAME)
    """Another agent of the catalog, with its LLM and policy, beside that of the thread; null for the thread's agent."""
    policy: Policy | None = None
    """A policy that judges the fork's calls beside its agent's: the strictest verdict counts. Null for no other."""
    context: ContextBody = None
    """Another typed context; null for that of the thread at that event."""

    @field_validator("policy", mode="before")
    @classmethod
    def _is_short(cls, policy: Any) -> Any:
        """Check the length before the policy's people are compared and its conditions compiled."""
        if isinstance(policy, dict) and len(json.dumps(policy)) > POLICY_CHARS:
            raise ValueError(f"a policy that is given with a fork has at most {POLICY_CHARS:,} characters of JSON")
        return policy

    @field_validator("policy")
    @classmethod
    def _is_fast(cls, policy: Policy | None) -> Policy | None:
        if policy and any(loops(rule.when) > 1 for rule in policy.rules):
            raise ValueError("a condition that is given with a fork has at most one loop over a list")
        return policy

    @model_validator(mode="after")
    def _has_one_message(self) -> "ForkBody":
        if self.say is not None and self.edit_message is not None:
            raise ValueError("give `say` or `edit_message`, not both")
        return self


class ForkedThread(ResponseBody):
    """A thread that was forked, or started again."""

    thread: str = Field(examples=["refund-4711-fork-3f09ac"])
    """Its id; `Location` has its address."""
    by: str
    """The owner of the token or key."""
    origin: str
    """The original thread."""
    position: int | None = None
    """The last common event; null for a thread that was started again."""


def forking_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """Return the routes that fork threads.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
    """
    routes = APIRouter()
    may = Depends(authenticator.for_thread("fork"))
    responses = {201: LOCATION, **problems(409, 422, *ON_THREAD)}

    @routes.post(
        "/threads/{thread}/forks",
        status_code=201,
        response_model=ForkedThread,
        responses=responses,
        openapi_extra=body_of(ForkBody, required=False),
    )
    async def fork_thread(request: Request, response: Response, access: Annotated[Access, may]) -> ForkedThread:
        """Fork a thread at one of its events: a new thread that begins with the same events. Also needs `start`."""
        body = read_body(await request.body() or b"{}", ForkBody)
        name = _new_id(access, body.id, new_fork_id(access.thread))
        try:
            forked = await fork(
                threads,
                access.thread,
                at=body.at,
                id=name,
                say=body.say,
                edit=body.edit_message,
                agent=body.agent,
                policies=() if body.policy is None else (body.policy,),
                keeps_policy=True,
                by=access.caller.name,
                context=body.context,
            )
        except (PositionInvalid, TaskInvalid, ThreadIdInvalid) as error:
            raise HTTPProblem(422, str(error)) from None
        except ThreadExists as error:
            raise HTTPProblem(409, str(error), outcome="exists") from None
        return _new_thread(response, access, forked.thread, position=forked.point.position)

    @routes.post(
        "/threads/{thread}/restart",
        status_code=201,
        response_model=ForkedThread,
        responses=responses,
        openapi_extra=body_of(RestartBody, required=False),
    )
    async def restart_thread(request: Request, response: Response, access: Annotated[Access, may]) -> ForkedThread:
        """Start a thread's task again in a new thread, in the caller's name. Also needs the scope `start`."""
        body = read_body(await request.body() or b"{}", RestartBody)
        name = _new_id(access, body.id, new_fork_id(access.thread).replace("-fork-", "-again-"))
        options = StartOptions(agent=body.agent, by=access.caller.name, context=body.context)
        try:
            started = await restart(threads, access.thread, options, id=name, task=body.task)
        except (TaskInvalid, ThreadIdInvalid) as error:
            raise HTTPProblem(422, str(error)) from None
        except ThreadExists as error:
            raise HTTPProblem(409, str(error), outcome="exists") from None
        return _new_thread(response, access, started.thread, position=None)

    return routes


def _new_id(access: Access, requested: str | None, derived: str) -> str:
    """Return the id of a new thread, if the caller may start it.

    Raises:
        HTTPProblem: The caller lacks the scope `start`, or may not start a thread with that id.
    """
    caller: Caller = access.caller
    if "start" not in caller.scopes:
        raise HTTPProblem(403, f"this also requires the scope start, and {caller.name} does not have it")
    return own_id(requested if requested is not None else derived, caller)


def _new_thread(response: Response, access: Access, thread: str, *, position: int | None) -> ForkedThread:
    response.headers["Location"] = f"/threads/{quote(thread, safe='')}"
    return ForkedThread(thread=thread, by=access.caller.name, origin=access.thread, position=position)
