"""Checks on the content of messages and tasks: valid JSON, and limits on size."""

import json

from holdfast.base.digests import canonical
from holdfast.llm.messages import MAX_DEPTH, Content, text_of, too_deep

MAX_TEXT_BYTES = 200_000
"""Maximum size of the text of a message, content blocks included; longer text belongs in a file in the workspace."""

MAX_BLOCKS_BYTES = 1_000_000
"""Maximum size of a message in content blocks, images included: Temporal allows payloads of 2 MB."""


def unfit(content: Content) -> str:
    """Return why a message or a task cannot be stored as it is; empty if it can."""
    if too_deep(content):
        return f"has more than {MAX_DEPTH} levels of JSON"
    try:
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return "holds NaN, infinity or a lone surrogate, which JSON cannot represent"
    return ""


def size_of(content: Content) -> int:
    """Return the size of a message in bytes of JSON."""
    return len(canonical(content))


def too_long(content: Content) -> str:
    """Return how a message or a task exceeds the size limit; empty if it does not."""
    size, what = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, what = (
            len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")),
            MAX_BLOCKS_BYTES,
            "bytes",
        )
    return f"has {size:,} {what}, but the limit is {limit:,}" if size > limit else ""
