"""The memories that a run's agent can recall: a person browses, corrects and removes them.

1. It needs the scope `memory`. A caller who is confined to some threads reaches the memories of the thread alone: those
   of agents and of everybody are shared with other threads.
2. The memories about a person are shown to that person alone.
3. A correction is a new item, which supersedes the old one, with the trust level of a person and the caller's name.
"""

import secrets
from contextlib import suppress
from typing import NoReturn

from starlette.responses import Response

from holdfast.client.threads import Threads
from holdfast.core.base.names import person_name
from holdfast.core.memory.semantic import GLOBAL, ItemNotFound, ItemRefused, MemoryItem, MemoryStore, NewMemory
from holdfast.errors import HoldfastError
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import see_other
from holdfast.gateway.page.views.memories import memory_view
from holdfast.gateway.page.views.runs import head_view
from holdfast.gateway.page.visits import Visit

SHOWN = 50
"""The most memories on a page."""
QUERY_CHARS = 500
"""The longest search."""


class Remembering:
    """The page of memories.

    Args:
        threads: The threads.
        memories: The memories; None if this gateway has no store of them.
    """

    def __init__(self, threads: Threads, memories: MemoryStore | None) -> None:
        self._threads = threads
        self._memories = memories

    async def show(self, visit: Visit) -> Response:
        """List memories: those that match a search, or the newest."""
        visit.require("memory")
        visit.require("read")
        return await self._page(visit, visit.thread())

    async def change(self, visit: Visit) -> Response:
        """Correct or remove a memory."""
        visit.require("memory")
        visit.require("read")
        thread = visit.thread()
        fields = {name: values[-1] for name, values in (await visit.form()).items()}
        store = self._store()
        state = await self._threads.state(thread, note=note)
        scopes, id, by = _scopes(visit, thread, state.get("agent")), fields.get("id", "")[:100], visit.caller.name
        try:
            item = next(iter(await store.history(id, scopes)))
            if fields.get("do") == "forget":
                await store.forget(id, scopes, trust="person", by=by, why=fields.get("why", "")[:300])
            elif fields.get("do") == "correct":
                new = _correction(item, fields.get("text", ""), by)
                await store.remember(new, key=f"page/{secrets.token_hex(16)}")
            else:
                raise HTTPProblem(422, "a memory is corrected or forgotten")
        except (ItemRefused, ItemNotFound, StopIteration) as error:
            problem = HTTPProblem(409, str(error) or "there is no such memory")
            return await self._page(visit, thread, problem=problem)
        except (HoldfastError, HTTPProblem):
            raise
        except Exception as error:
            _unavailable(error)
        return see_other("runs", thread, "memory")

    async def _page(self, visit: Visit, thread: str, *, problem: HTTPProblem | None = None) -> Response:
        store, query = self._store(), visit.request.query_params.get("q", "")[:QUERY_CHARS]
        state = await self._threads.state(thread, note=note)
        scopes = _scopes(visit, thread, state.get("agent"))
        try:
            found = await store.recall(query, scopes, limit=SHOWN)
        except HoldfastError:
            raise
        except Exception as error:
            _unavailable(error)
        return visit.render(
            "memory.html",
            problem.status if problem else 200,
            run=head_view(state, visit.caller.scopes),
            silent=False,
            problem=str(problem or ""),
            query=query,
            scopes=scopes,
            items=[memory_view(item, visit.now) for item in found.items],
            remark=found.note,
        )

    def _store(self) -> MemoryStore:
        if self._memories is None:
            raise HTTPProblem(404, "this gateway has no store of memories: set DATABASE_URL as the workers have it")
        return self._memories


def _scopes(visit: Visit, thread: str, agent: str | None) -> list[str]:
    """Return the scopes of memory that a caller reaches by a run."""
    scopes = [f"thread:{thread}"]
    if not visit.caller.threads:
        scopes += [f"agent:{agent}"] if agent else []
        with suppress(ValueError):  # a name that no run can have
            scopes.append(f"user:{person_name(visit.caller.name)}")
        scopes.append(GLOBAL)
    return scopes


def _correction(item: MemoryItem, text: str, by: str) -> NewMemory:
    return NewMemory(
        scope=item.scope,
        text=text,
        trust="person",
        standing=item.standing,
        kind=item.kind,
        by=by,
        expires_at=item.expires_at,
        supersedes=item.id,
    )


def _unavailable(error: Exception) -> NoReturn:
    """Report that the store is unavailable: a user's own may raise any exception then.

    Raises:
        HTTPProblem: 503.
    """
    raise HTTPProblem(503, f"the memories cannot be read or written now ({type(error).__name__})") from error
