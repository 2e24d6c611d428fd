"""Who sees a reply before it is recorded, and the worst that a cursor or a forged chunk can do."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2

from holdfast import Agent, Catalog
from holdfast.client.threads import Threads
from holdfast.core.streams.batches import Piece
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Token
from holdfast.streaming.hub import Hub
from holdfast.streaming.transport import Attempt
from holdfast.testing import say, steps
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import PATIENCE, Rig, StartRig
from tests.support.serving import served, sha256
from tests.support.streamed import Seen, drafts, read_all, streamed

TEXT = "Nobody has recorded these words."
CALLERS = CallersFile(
    tokens=(
        Token(name="reader", sha256=sha256("of-reader"), scopes=("read", "transcript")),
        Token(name="status", sha256=sha256("of-status"), scopes=("read",)),
        Token(name="billing", sha256=sha256("of-billing"), scopes=("read", "transcript"), threads=("billing-",)),
    )
)


def agents() -> Catalog:
    """Return an agent that answers."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=())])


@asynccontextmanager
async def gateway_of(worker: Rig, hub: Hub) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway."""
    app = build_app(Threads(worker.client, task_queue=worker.task_queue), Callers(CALLERS), hub=hub)
    async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE, trust_env=False) as http:
        yield http


def headers(token: str, last: str = "") -> dict[str, str]:
    """Return the headers of a request."""
    return {"Authorization": f"Bearer of-{token}", **({"Last-Event-ID": last} if last else {})}


async def frames(answer: Any) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Yield server-sent events: id, name, content."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}


async def test_deltas_need_the_scope_transcript_and_a_cursor_is_only_a_place(rig: StartRig) -> None:
    """A caller without the scope, or without access to the thread, sees no word, whichever id it sends; an id of
    another thread opens nothing; a stream that is cut continues after its last id; and nobody who leaves ends the run.
    """
    seen, more = Seen(), threading.Event()
    held = seen.reply(say(TEXT))

    def pause(number: int) -> None:
        assert held.pause is not None
        held.pause(number)
        if number == 3:
            more.wait(PATIENCE)

    reply = replace(held, pause=pause)
    async with streamed(rig, agents(), steps([reply])) as (worker, hub), gateway_of(worker, hub) as http:
        run = await worker.start(thread=f"secret-{uuid4().hex[:8]}")
        path, deltas = f"/threads/{run.id}/events", {"deltas": "true"}
        for token, status in (("status", 403), ("billing", 404)):
            for last in ("", "0", "2.1.1"):
                refused = await http.get(path, params=deltas, headers=headers(token, last))
                assert (refused.status_code, TEXT in refused.text) == (status, False)
        for wrong in ("2.1", "x", "2.0.1", "-1.1.1", "9" * 40):
            answer = await http.get(path, params=deltas, headers=headers("reader", wrong))
            assert answer.status_code == 422
        items: list[tuple[str, str, dict[str, Any]]] = []
        async with http.stream("GET", path, params=deltas, headers=headers("reader")) as answer:
            async for each in frames(answer):
                items.append(each)
                if each[1] == "delta":
                    break
        more.set()
        async with http.stream("GET", path, params=deltas, headers=headers("reader", items[-1][0])) as answer:
            async for each in frames(answer):
                items.append(each)
                if each[1] == "delta":
                    words = "".join(content["text"] for _, name, content in items if name == "delta")
                    if words == TEXT:
                        break
        # The status reader's stream has events alone, and this one lets the reply end.
        async with http.stream("GET", path, headers=headers("status")) as answer:
            seen.finish()
            names = [name async for _, name, _ in frames(answer)]
        assert "delta" not in names
        assert names[-2:] == ["run_finished", "end"]
        ids = [each for each, _, _ in items]
        assert len(set(ids)) == len(ids)
        await run.result()


async def test_a_forged_chunk_is_replaced_by_the_recorded_reply(rig: StartRig) -> None:
    """A compromised worker may write chunks for a thread that it does not run. Readers of that thread see them as the
    preview that they are: the log alone is recorded, the true attempt supersedes the forged one if it begins later,
    and after the reply's event no forged chunk of its position is shown. Other threads are not affected.
    """
    transport, seen = InMemoryStreams(), Seen()
    async with streamed(rig, agents(), steps([seen.reply(say(TEXT))]), transport=transport) as (worker, hub):
        thread = f"forged-{uuid4().hex[:8]}"
        for position in (2, 10**9):
            forged = Attempt(thread, position, -1, 7)
            await transport.append([(forged, [Piece(1, "text", "Send the money.", None, "")])])
        await transport.claim(Attempt(thread, 2, -1, 7))
        run = await worker.start(thread=thread)
        items = await read_all(worker, hub, run.id, seen=seen)
        assert drafts(items).popitem()[1] == TEXT
        after = items[[each["type"] for each in items if isinstance(each, dict)].index("run_finished") :]
        assert not [each for each in after[1:] if "Send the money." in str(each)]
        assert "Send the money." not in str([each for each in items if isinstance(each, dict)])
