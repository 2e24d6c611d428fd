"""Memories for display."""

from datetime import datetime
from typing import NamedTuple

from holdfast.core.memory.semantic import MemoryItem, provenance
from holdfast.gateway.page.views.text import Piece, When, line, pieces, when


class MemoryRow(NamedTuple):
    """A memory."""

    id: str
    text: tuple[Piece, ...]
    editable: str
    facts: str
    """Its scope, trust level and kind."""
    source: str
    created: When | None
    expires: When | None


def memory_view(item: MemoryItem, now: datetime) -> MemoryRow:
    """Return a memory for display."""
    facts = [item.scope, f"trust: {item.trust}", *([item.kind] if item.kind else [])]
    return MemoryRow(
        item.id,
        pieces(item.text),
        item.text,
        line(" · ".join([*facts, *(["standing"] if item.standing else [])]), 400),
        line(provenance(item), 400),
        when(item.created_at, now),
        when(item.expires_at, now),
    )
