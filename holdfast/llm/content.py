"""What a message or a task may hold, and how long it may be."""

import json

from holdfast.base.digests import canonical
from holdfast.llm.messages import MAX_DEPTH, Content, text_of, too_deep

MAX_TEXT_BYTES = 200_000
"""A longer text belongs into a file in the workspace; also where it is given in content blocks."""


MAX_BLOCKS_BYTES = 1_000_000
"""Of a message in content blocks, images included: Temporal allows 2 MB a payload."""


def unfit(content: Content) -> str:
    """Why a message or a task cannot be kept as it is; empty if it can."""
    if too_deep(content):
        return f"has more than {MAX_DEPTH} levels of JSON"
    try:
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return "holds what JSON cannot say: a number that is none, or half a surrogate pair"
    return ""


def size_of(content: Content) -> int:
    """Bytes of a message as JSON."""
    return len(canonical(content))


def too_long(content: Content) -> str:
    """What is wrong with the length of a message or a task; empty if nothing is."""
    size, what = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, what = (
            len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")),
            MAX_BLOCKS_BYTES,
            "bytes",
        )
    return f"has {size:,} {what}, and {limit:,} are the limit" if size > limit else ""
