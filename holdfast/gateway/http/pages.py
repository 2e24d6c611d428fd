"""Pages of a thread's content, limited in number and size."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, TypeVar, cast

import structlog
from fastapi import Query

PAGE_BYTES = 1_000_000
"""The most bytes of a page, unless a single item is larger."""

PageLimit = Annotated[int, Query(ge=1, le=1_000, description="The most items; a page may have fewer.")]

log = structlog.get_logger("gateway")
_Item = TypeVar("_Item")


def note(reason: str) -> None:
    """Log that no worker answers, so that the recorded history is read instead."""
    log.info("read_from_history", why=reason)


async def take(items: AsyncIterator[_Item], *, limit: int, skip: int = 0) -> tuple[list[_Item], bool]:
    """Return a page of items, and whether there are more.

    Args:
        items: JSON values; the iterator is closed.
        limit: The most items.
        skip: The number of items to skip first.
    """
    page: list[_Item] = []
    size = 0
    async with aclosing(cast(AsyncGenerator[_Item], items)):
        async for item in items:
            if skip:
                skip -= 1
                continue
            size += len(json.dumps(item, ensure_ascii=False).encode())
            if len(page) == limit or (page and size > PAGE_BYTES):
                return page, True
            page.append(item)
    return page, False
