"""Checks on the content of messages and tasks: their form, and limits on size."""

from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.core.base.canonical import canonical, unportable
from holdfast.core.llm.blocks import Content, Media, blocks_of, text_of

MAX_TEXT_BYTES = 200_000
"""Maximum size of the text of a message, content blocks included; longer text belongs in a file in the workspace."""

MAX_BLOCKS_BYTES = 1_000_000
"""Maximum size of a message in content blocks, images included: Temporal allows payloads of 2 MB."""

_CONTENT: TypeAdapter[Content] = TypeAdapter(Content)


def read_content(given: Any) -> Content:
    """Read what somebody sends: text, or a list of content blocks as JSON.

    Raises:
        ValueError: It is neither; the message names each place.
    """
    try:
        return _CONTENT.validate_python(given)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()]
        raise ValueError("; ".join(problems)) from None


def content_json(content: Content) -> Any:
    """Return content as JSON: text, or a list of blocks."""
    return _CONTENT.dump_python(content, mode="json")


def unfit(content: Content) -> str:
    """Return why a person's message or task cannot be stored as it is; empty if it can."""
    for block in blocks_of(content):
        if block.provider is not None and not (isinstance(block, Media) and not block.address):
            return f"has a {block.type} block with a `provider` part, which only a provider can issue"
        if isinstance(block, Media):
            try:
                block.content()
            except ValueError as error:
                return f"has a {block.type} block whose `data` is not base64 ({error})"
    why = unportable(content_json(content))
    return f"holds {why}" if why else ""


def size_of(content: Content) -> int:
    """Return the size of a message in bytes of JSON."""
    return len(canonical(content_json(content)))


def too_long(content: Content) -> str:
    """Return how a message or a task exceeds the size limit; empty if it does not."""
    size, what = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, what = size_of(content), MAX_BLOCKS_BYTES, "bytes"
    return f"has {size:,} {what}, but the limit is {limit:,}" if size > limit else ""
