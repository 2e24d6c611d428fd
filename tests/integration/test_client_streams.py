"""`Thread.stream` as programs use it: on the real server, through PostgreSQL, in both kinds of program."""

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holdfast import Agent, Catalog, Client, Piece, SyncClient
from holdfast.config.stack_file import Stack
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.publisher import publishing
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import PATIENCE, StartRig, environ_of
from tests.support.streamed import Seen

TEXT = "Every word comes once."


class Weather(BaseModel):
    """A structured result."""

    city: str
    days: list[int]


def see(seen: Seen, piece: Piece) -> None:
    """Let the reply end when the program has seen all of it."""
    seen.add(piece.event.type if piece.event else "", piece.kind, piece.text)


async def test_a_program_reads_pieces_and_continues_at_an_id(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Joined, the pieces are the recorded text and the result is readable while it is written; a second program gets
    the rest after an id; the blocking client yields the same.
    """
    arguments = Weather(city="Kyiv", days=[1, 2, 3])
    agents = Catalog(
        agents=[
            Agent(name="writer", instructions="Write.", tools=()),
            Agent(name="forecaster", instructions="Forecast.", tools=(), result=Weather),
        ]
    )
    seen = Seen()
    result = call("final_result", result=arguments.model_dump())

    def script(conversation: Conversation) -> Reply:
        return seen.reply(result if "final_result" in conversation.tools else say(TEXT))

    environ = environ_of(stack)
    options: dict[str, Any] = {
        "address": environ["TEMPORAL_ADDRESS"],
        "fleet_keys": environ["HOLDFAST_FLEET_KEYS"],
        "database_url": stack.database_url,
        "home": tmp_path,
    }
    async with (
        publishing(PostgresStreams(stack.database_url)) as publisher,
        rig(agents, script, publisher=publisher) as worker,
        asyncio.timeout(PATIENCE),
        Client.connect(task_queue=worker.task_queue, **options) as client,
    ):
        thread = await client.start("Write", agent="writer")
        pieces: list[Piece] = []
        async for piece in thread.stream():
            pieces.append(piece)
            see(seen, piece)
        assert "".join(each.text for each in pieces if each.kind == "text") == TEXT
        (reply,) = [each.event for each in pieces if each.event and each.event.type == "llm_replied"]
        assert reply.message is not None
        assert reply.message.text == TEXT
        first = next(each for each in pieces if each.kind == "text")
        rest = [each.id async for each in thread.stream(after=first.id)]
        assert rest == [each.id for each in pieces[pieces.index(first) :] if each.kind == "event"], "it is recorded"

        forecast = await client.start("Forecast", agent="forecaster")
        results = []
        async for piece in forecast.stream():
            see(seen, piece)
            if piece.kind == "arguments":
                assert piece.tool == "final_result"
                results.append(piece.result)
        assert results[-1] == arguments.model_dump()
        assert (await forecast.result()).parse(Weather) == arguments

        def blocking() -> list[str]:
            with SyncClient.connect(task_queue=worker.task_queue, **options) as sync:
                return [each.id for each in sync.thread(thread.id).stream()]

        assert await asyncio.to_thread(blocking) == [each.id for each in pieces if each.kind == "event"]
