"""Verbs for semantic memory: remember, recall, forget. They use only the memory store, and need no worker.

Memories written here have the trust level `person`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import OK
from holdfast.cli.options import By, Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import clock, indented, visible
from holdfast.config.programs import WORKER
from holdfast.core.base.durations import read_seconds

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.core.memory.semantic import MemoryItem, MemoryStore

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="For agents that work for this person.")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="For this agent, in any thread.")]
InThread = Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="For this thread only.")]
Global = Annotated[bool, typer.Option("--global", help="For all agents.")]
Item = Annotated[str, typer.Argument(metavar="ID", help="As `recall` shows it.")]

verbs = Verbs()


@verbs.verb(
    'remember "Releases go out on Tuesdays." --agent releaser',
    'remember "Prefers short answers." --user alice --standing',
    'remember "The staging server is down." --global --for 2d',
    'remember "Releases go out on Mondays." --agent releaser --supersedes m-7f3k2ab',
)
async def remember(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One fact, in words that make sense alone.")],
    user: User = None,
    agent: Agent = None,
    thread: InThread = None,
    everybody: Global = False,
    standing: Annotated[bool, typer.Option("--standing", help="Show it to the agent in each of its runs.")] = False,
    span: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="Forget it after that: 4h, 30d.")] = None,
    supersedes: Annotated[str, typer.Option(metavar="ID", help="Replace this item.")] = "",
    by: By = None,
) -> int:
    """Remember something, at the trust level of a person."""
    scopes = _scopes(user, agent, thread, everybody)
    if len(scopes) != 1:
        raise typer.BadParameter("say whose it is: one of --user, --agent, --thread and --global")
    try:
        seconds = None if span is None else read_seconds(span)
    except ValueError as error:
        raise typer.BadParameter(f"--for {error}") from None
    from datetime import UTC, datetime, timedelta
    from uuid import uuid4

    from holdfast.core.memory.semantic import NewMemory

    new = NewMemory(
        scope=scopes[0],
        text=text,
        trust="person",
        standing=standing,
        by=session.person(by),
        expires_at=None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds),
        supersedes=supersedes,
    )
    async with _open_store(session) as store:
        _print(session, await store.remember(new, key=f"cli/{uuid4().hex}"))
    return OK


@verbs.verb(
    'recall "when do releases go out"',
    "recall --user alice",
    'recall "staging" --agent releaser --global --limit 3 --json',
    "recall --history m-7f3k2ab",
)
async def recall(
    session: Session,
    query: Annotated[str, typer.Argument(metavar="[QUERY]", help="In your own words; without it, the newest.")] = "",
    user: User = None,
    agent: Agent = None,
    thread: InThread = None,
    everybody: Global = False,
    limit: Annotated[int, typer.Option(min=1, max=50, metavar="N", help="The most items.")] = 5,
    history: Annotated[
        str | None, typer.Option(metavar="ID", help="Print this item and all that it superseded, instead.")
    ] = None,
) -> int:
    """Search the memories in these scopes, or in all."""
    if history is not None and query:
        raise typer.BadParameter("say QUERY or --history, not both")
    scopes = _scopes(user, agent, thread, everybody) or None
    if history is not None:
        async with _open_store(session) as store:
            for item in await store.history(history, scopes):
                _print(session, item)
        return OK
    from holdfast.core.memory.semantic import check_scope

    for scope in scopes or ():
        check_scope(scope)
    async with _open_store(session) as store:
        result = await store.recall(query, scopes, limit=limit)
    for item in result.items:
        _print(session, item)
    if result.note:
        session.output.note(visible(result.note))
    if not result.items:
        session.output.note("Nothing is remembered about that." if query.strip() else "Nothing is remembered yet.")
    return OK


@verbs.verb('forget m-7f3k2ab --reason "she moved"')
async def forget(
    session: Session,
    item: Item,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in its place.")] = "",
    by: By = None,
) -> int:
    """Remove an item for good, with all items that it superseded.

    The events of the run that wrote it do not change.
    """
    async with _open_store(session) as store:
        _print(session, await store.forget(item, None, trust="person", by=session.person(by), why=reason))
    return OK


def _scopes(user: str | None, agent: str | None, thread: str | None, everybody: bool) -> list[str]:
    from holdfast.core.base.names import person_name

    try:
        person = None if user is None else person_name(user)
    except ValueError as error:
        raise typer.BadParameter(f"--user: {error}") from None
    names = {"user": person, "agent": agent, "thread": thread}
    return [f"{kind}:{name}" for kind, name in names.items() if name is not None] + ["global"] * everybody


@asynccontextmanager
async def _open_store(session: Session) -> "AsyncIterator[MemoryStore]":
    """Open the memory store: the catalog's own, or else PostgreSQL's.

    Raises:
        ServerUnreachable: There is no database, it does not answer, or it has no memories.
    """
    import logging

    import structlog

    from holdfast.core.base.text import one_line
    from holdfast.errors import HoldfastError, ServerUnreachable

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # stdout is for results
    try:
        embeddings = await session.parts.embeddings()
        store = (await session.parts.stores(embeddings=embeddings)).memories
        if store is None:
            raise ServerUnreachable(
                "there is no database to remember in: set DATABASE_URL to the one that the workers have, or start "
                f"`{WORKER.command('--dev')}`"
            )
        yield store
    except HoldfastError:
        raise
    # A user's store may raise any exception if it is unreachable.
    except Exception as error:
        reason = one_line(str(error), 200) or type(error).__name__
        raise ServerUnreachable(
            f"the memories cannot be read or written ({reason}). Check DATABASE_URL; a worker of this release prepares "
            "a database that is new."
        ) from error


def _print(session: Session, item: "MemoryItem") -> None:
    session.output.result(item.model_dump(mode="json"), _screen(item))


def _screen(item: "MemoryItem") -> "Text":
    """Return an item for people."""
    from rich.text import Text

    from holdfast.core.memory.semantic import provenance

    until = f", until {clock(item.expires_at.isoformat())}" if item.expires_at else ""
    head = Text.assemble(
        (item.id, "bold"),
        f"  {visible(item.scope)}  trust: {item.trust}",
        f"  {visible(item.kind)}" if item.kind else "",
        "  standing" if item.standing else "",
        (f"  {clock(item.created_at.isoformat())}{until}  {visible(provenance(item))}", "dim"),
    )
    return Text("\n").join([head, *(Text(indented(line)) for line in _lines(item))])


def _lines(item: "MemoryItem") -> list[str]:
    lines = [visible(item.text)] if item.text else []
    if item.superseded_by:
        lines.append(f"(superseded by {item.superseded_by})")
    if item.forgotten_at:
        why = f": {visible(item.forgotten_why)}" if item.forgotten_why else ""
        lines.append(f"(forgotten {clock(item.forgotten_at.isoformat())} by {visible(item.forgotten_by)}{why})")
    return lines
