"""Requests that people decide several at once: open calls of the same tool under the same rule."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.config.page_links import path_of
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.base.canonical import digest
from holdfast.gateway.page.views.requests import Call, Person, call_view
from holdfast.gateway.page.views.text import line

JSON = Mapping[str, Any]

GROUPS = 5
"""The most groups that the inbox offers."""


class Group(NamedTuple):
    """Requests of the same tool and rule."""

    tool: str
    rule: str
    size: int
    path: str


class Item(NamedTuple):
    """A request as it was shown to the person who decides it."""

    thread: str
    request: str
    digest: str


class LeftOut(NamedTuple):
    """A request that stays undecided."""

    thread: str
    request: str
    path: str
    why: str


class Sorted(NamedTuple):
    """The items of a form as their runs have them now."""

    open: tuple[tuple[Item, Call], ...]
    """Those that the person can decide, as they were shown, in the order of the form."""
    left_out: tuple[LeftOut, ...]
    mixed: bool
    """One of them is of another tool or rule."""


def kind_of(request: JSON) -> str:
    """Return the id of what a request shares with those that can be decided with it: tool, rule, and who decides.

    Empty for a request that has to be looked at alone: an unknown outcome, or a question of a tool's server.
    """
    if request["kind"] != "approval" or not {"approve", "deny"} <= set(request.get("answers") or ()):
        return ""
    texts = [str(request["tool"]), str(request.get("rule") or ""), *map(str, request.get("who") or ())]
    portable = [each.encode("utf-8", "replace").decode() for each in texts]
    return digest(["kind/1", int(request.get("quorum") or 1), *portable])[:32]


def groups(requests: Iterable[JSON]) -> tuple[Group, ...]:
    """Return the groups of at least two requests that can be decided at once, the largest first."""
    of_kind: dict[str, JSON] = {}
    counts = Counter[str]()
    for request in requests:
        if kind := kind_of(request):
            of_kind.setdefault(kind, request)
            counts[kind] += 1
    return tuple(
        Group(line(each["tool"], 100), line(each.get("rule") or "", 200), count, path_of("bulk", kind))
        for kind, count in counts.most_common(GROUPS)
        if count > 1 and (each := of_kind[kind])
    )


def sort_items(
    items: Iterable[Item],
    found: Mapping[tuple[str, str], JSON | str],
    kind: str,
    decision: DecisionKind,
    person: Person,
    now: datetime,
    *,
    signed: Container[Item] | None,
) -> Sorted:
    """Sort out which requests of a form a person can decide now.

    Args:
        items: The requests, as they were shown.
        found: Thread and request → the request as `pending` presents it, with its `thread`; or why it cannot be read.
        kind: Their kind (`kind_of`).
        decision: The decision.
        person: Who decides.
        now: The time.
        signed: Those that the person has signed; None if they can still be signed.
    """
    calls: list[tuple[Item, Call]] = []
    left_out: list[LeftOut] = []
    mixed = False
    for item in items:
        request = found.get((item.thread, item.request), "It is not open any more: it was decided, or has expired.")
        if isinstance(request, str):
            why = line(request, 600)
        else:
            call = call_view(request, person, now)
            mixed = mixed or kind_of(request) != kind
            if not (why := _why_not(call, item, decision, may_sign=signed is None or item in signed)):
                calls.append((item, call))
        if why:
            path = path_of("requests", item.thread, item.request)
            left_out.append(LeftOut(line(item.thread, 300), line(item.request), path, why))
    return Sorted(tuple(calls), tuple(left_out), mixed)


def _why_not(call: Call, item: Item, decision: DecisionKind, *, may_sign: bool) -> str:
    """Return why a request stays undecided; empty if the person can decide it."""
    if call.digest != item.digest:
        return "It has changed since it was shown to you. Look at it as it is now."
    choice = call.choice(decision)
    if choice is None:
        return f"It cannot be decided by {decision}."
    return "" if choice.needs_key and may_sign and call.signable else choice.refused
