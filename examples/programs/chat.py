"""A chat over HTTP in one process: FastAPI, its agents, and, on your own machine, the servers that they need.

    uvicorn holdfast.examples.programs.chat:app --reload
    curl localhost:8000/chats -H 'Content-Type: application/json' -d '{"text": "Is there a table for two tonight?"}'

A chat is a thread. The process may be killed or reloaded at any time: a chat continues where it was, and a reservation
that is under way is made once. A reservation for more than six people waits for the staff, who decide it from another
terminal (`holdfast approve`); the chat stays open meanwhile.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Path, Request
from pydantic import BaseModel, Field

import holdfast
from holdfast import Agent, Catalog, Client, Limits, Policy, Thread, ThreadNotFound, allow, ask, tool
from holdfast.testing import Conversation, Reply, call, say


@tool(effect="read")
async def free_tables(people: int) -> list[str]:
    """List the times at which a table is free tonight.

    Args:
        people: How many people.
    """
    return ["18:00", "20:30"]  # from your calendar


@tool(effect="idempotent")
async def reserve(time: str, people: int) -> str:
    """Reserve a table tonight.

    Args:
        time: Such as 18:00.
        people: How many people.
    """
    return f"a table for {people} at {time} is reserved"  # in your calendar


host = Agent(
    name="host",
    instructions="You are the host of a restaurant, and reserve tables for tonight.",
    tools=[free_tables, reserve],
    policy=Policy(rules=(ask("reserve", when="args.people > 6", reason="a large party"), allow())),
    limits=Limits(idle_limit=86_400),
)
catalog = Catalog(agents=[host])


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    if conversation.results:
        return say(f"The calendar says: {conversation.results[0]}")
    words = conversation.last_user_message.lower()
    people = next((int(word) for word in words.split() if word.isdigit()), 2)
    if "reserve" in words:
        return call("reserve", time="20:30", people=people)
    return call("free_tables", people=people)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the agents as long as the application."""
    async with holdfast.running(catalog, script=script) as client:
        app.state.agents = client
        yield


app = FastAPI(title="Chat", lifespan=lifespan)


class Message(BaseModel):
    """What a guest says."""

    text: str = Field(min_length=1, max_length=2_000)


class Answer(BaseModel):
    """What the agent says."""

    chat: str
    """The chat's id. It is a secret: whoever has it can read the chat and speak in it."""
    text: str
    waits_for: list[str]
    """The tools whose calls the staff has to decide; the answer comes after that."""


def client_of(request: Request) -> Client:
    """Return the client of the agents."""
    client: Client = request.app.state.agents
    return client


Agents = Annotated[Client, Depends(client_of)]
ChatId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{32}$")]


@app.post("/chats")
async def begin(message: Message, agents: Agents) -> Answer:
    """Begin a chat."""
    chat = secrets.token_urlsafe(24)
    return await answer(chat, await agents.start(message.text, thread=thread_id(chat)))


@app.post("/chats/{chat}")
async def speak(chat: ChatId, message: Message, agents: Agents) -> Answer:
    """Say something in a chat."""
    thread = agents.thread(thread_id(chat))
    try:
        await thread.say(message.text)
    except ThreadNotFound:
        raise HTTPException(404, "there is no such chat") from None
    return await answer(chat, thread)


@app.get("/chats/{chat}")
async def read(chat: ChatId, agents: Agents) -> Answer:
    """Return the latest answer."""
    try:
        return await answer(chat, agents.thread(thread_id(chat)))
    except ThreadNotFound:
        raise HTTPException(404, "there is no such chat") from None


def thread_id(chat: str) -> str:
    """Return the thread of a chat; the prefix keeps all other threads out of reach."""
    return f"chat-{chat}"


async def answer(chat: str, thread: Thread) -> Answer:
    """Wait until the agent has answered, or the staff is asked."""
    try:
        result = await thread.result(until="attention", timeout=60)
    except TimeoutError:
        raise HTTPException(504, "the agent is still at work: read the chat again later") from None
    return Answer(chat=chat, text=result.text, waits_for=[request.tool for request in result.pending])
