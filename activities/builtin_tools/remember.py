"""The tools of semantic memory: `remember`, `remember_always`, `recall`, `forget`.

1. The caller and its trust level come from the run (`ToolContext.origin`), never from the LLM's arguments.
2. An agent can access its own scope, its user's, its thread's, and the global one.
3. An item gets the trust level of the agent's transcript; `person`, if a person approved this call.
4. The global scope and standing memories reach every agent, or every run: an agent whose transcript is tainted
   (`holdfast.core.trust.is_tainted`) needs a person's approval to change them.
"""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from holdfast.core.memory.semantic import (
    GLOBAL,
    ItemRefused,
    MemoryStore,
    NewMemory,
    check_scope,
    recalled_text,
    trust_of,
)
from holdfast.core.tools.decorator import Labelled, Tool, ToolContext, tool
from holdfast.core.tools.not_done import REPEATABLE
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.trust import Trust, is_tainted

MOST_RECALLED = 20
"""The most items that `recall` returns."""

Scope = Literal["agent", "user", "thread", "global"]
Limit = Annotated[int, Field(ge=1, le=MOST_RECALLED)]
Days = Annotated[float, Field(gt=0, le=36_500)]


def semantic_tools(store: MemoryStore, secrets: Secrets = NO_SECRETS) -> list[Tool]:
    """Build the tools of an agent with `Memory(semantic=True)`.

    Args:
        store: Stores the items.
        secrets: Redacted from every item.
    """

    async def keep(
        text: str,
        scope: Scope,
        supersedes: str,
        expires_in_days: float | None,
        context: ToolContext,
        *,
        kind: str = "",
        standing: bool = False,
    ) -> str:
        target = _require_scope(scope, context)
        _may_write(target, context, standing=standing)
        new = NewMemory(
            scope=target,
            text=secrets.redact(text),
            trust=_trust(context),
            standing=standing,
            kind=secrets.redact(kind),
            thread=context.thread,
            position=context.origin.position,
            by=context.origin.agent,
            expires_at=None if expires_in_days is None else context.at + timedelta(days=expires_in_days),
            supersedes=supersedes.strip(),
        )
        item = await store.remember(new, key=context.key)
        replaced = f", in place of {item.supersedes}" if item.supersedes else ""
        always = " You will see it in each run." if standing else ""
        return f"Remembered as {item.id} ({item.scope}, trust: {item.trust}){replaced}.{always}"

    @tool(effect="idempotent", origin=True, trust="agent", not_done_on=REPEATABLE, files=())
    async def remember(
        text: str,
        scope: Scope = "agent",
        kind: str = "",
        supersedes: str = "",
        expires_in_days: Days | None = None,
        *,
        context: ToolContext,
    ) -> str:
        """Remember a fact, a preference or an insight beyond this thread. `recall` finds it again.

        Args:
            context: Filled in by Holdfast.
            text: One thing, in words that make sense on their own; at most 8,000 characters.
            scope: Who can recall it: `agent` for you, in any thread; `user` for agents that work for this person;
                `thread` for this thread only; `global` for all agents.
            kind: What it is, such as `fact`, `preference` or `insight`.
            supersedes: The id of an item that this one replaces.
            expires_in_days: In how many days to forget it; never, if left out.
        """
        return await keep(text, scope, supersedes, expires_in_days, context, kind=kind)

    @tool(effect="idempotent", origin=True, trust="agent", trusted_only=True, not_done_on=REPEATABLE, files=())
    async def remember_always(
        text: str,
        scope: Scope = "agent",
        supersedes: str = "",
        expires_in_days: Days | None = None,
        *,
        context: ToolContext,
    ) -> str:
        """Remember something that each run shows you without `recall`: a standing memory. Use it rarely.

        Args:
            context: Filled in by Holdfast.
            text: One thing, in words that make sense on their own; at most 1,000 characters.
            scope: Who sees it: `agent` for you, `user` for agents that work for this person, `thread` for this thread
                only, `global` for all agents.
            supersedes: The id of an item that this one replaces.
            expires_in_days: In how many days to forget it; never, if left out.
        """
        return await keep(text, scope, supersedes, expires_in_days, context, standing=True)

    @tool(effect="read", origin=True, files=())
    async def recall(query: str, limit: Limit = 5, *, context: ToolContext) -> Labelled:
        """Search what was remembered: by you, for the person you work for, in this thread, or for all agents.

        Args:
            context: Filled in by Holdfast.
            query: What you want to know, in your own words; empty for the newest items.
            limit: How many items to return.
        """
        memories = await store.recall(query, reachable(context), limit=limit)
        return Labelled(recalled_text(memories, context.at), trust_of(memories.items))

    @tool(effect="idempotent", origin=True, trust="agent", not_done_on=REPEATABLE, files=())
    async def forget(id: str, reason: str = "", *, context: ToolContext) -> str:
        """Permanently remove a remembered item, and the items that it superseded.

        Args:
            context: Filled in by Holdfast.
            id: The item's id as `recall` shows it, such as m-7f3k2ab.
            reason: Why; stored in place of the text.
        """
        id = id.strip()
        (item, *_) = await store.history(id, reachable(context))
        _may_write(item.scope, context)
        forgotten = await store.forget(
            id,
            reachable(context),
            trust=_trust(context),
            by=context.origin.agent,
            why=secrets.redact(reason),
        )
        return f"Forgotten: {forgotten.id}."

    return [remember, remember_always, recall, forget]


def reachable(context: ToolContext) -> list[str]:
    """Return the scopes that a call can access; a scope without a valid name is left out."""
    return [scope for name in ("agent", "user", "thread", "global") if (scope := _scope_of(name, context))]


def _require_scope(name: Scope, context: ToolContext) -> str:
    if scope := _scope_of(name, context):
        return scope
    missing = "no user is named for this task" if name == "user" else f"the {name} of this run has no valid name"
    raise ItemRefused(f"{missing}, so there is no {name} scope; use another scope")


def _scope_of(name: str, context: ToolContext) -> str | None:
    if name == "global":
        return GLOBAL
    one = {"agent": context.origin.agent, "user": context.origin.user, "thread": context.thread}[name]
    try:
        return check_scope(f"{name}:{one}")
    except ItemRefused:
        return None


def _trust(context: ToolContext) -> Trust:
    return "person" if context.origin.approved else context.origin.trust


def _may_write(scope: str, context: ToolContext, *, standing: bool = False) -> None:
    origin = context.origin
    if (scope == GLOBAL or standing) and is_tainted(origin.trust) and not origin.approved:
        target = "standing memories" if standing else "global memories"
        raise ItemRefused(
            f"this thread has read content that no person vouches for (trust: {origin.trust}), so you may not change "
            f"{target} without a person's approval; remember it in another way, or ask a person to do it"
        )
