"""Converts the result of an MCP tool to content blocks: text, images, audio, resources and structured content.

A server may send anything. A part that is no valid block becomes a text that says so.
"""

import json
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import ValidationError

from holdfast.core.llm.blocks import AudioBlock, FileBlock, ImageBlock, TextBlock
from holdfast.core.tools.argument_schema import unfit

Part = TextBlock | ImageBlock | AudioBlock | FileBlock


def content_of(result: CallToolResult, output_schema: dict[str, Any] | None) -> str | list[Part]:
    """Return the content of a result: a text if it has nothing else, or content blocks.

    Args:
        result: The server's answer.
        output_schema: The pinned schema of its structured content; None if the tool has none.
    """
    parts = [part for block in result.content for part in _parts(block)]
    if (structured := result.structured_content) is not None:
        parts += _structured(structured, output_schema, [part.text for part in parts if isinstance(part, TextBlock)])
    if all(isinstance(part, TextBlock) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextBlock))
    return parts


def text_in(result: CallToolResult) -> str:
    """Return the text of a result, for an error."""
    content = content_of(result, None)
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextBlock) else f"[{part.type}]" for part in content)


def _parts(block: Any) -> list[Part]:
    match block:
        case TextContent():
            return [TextBlock(text=block.text)]
        case ImageContent():
            return [_media(ImageBlock, block.data, block.mime_type, "image")]
        case AudioContent():
            return [_media(AudioBlock, block.data, block.mime_type, "audio")]
        case ResourceLink():
            about = " ".join(filter(None, (block.mime_type, block.description)))
            return [TextBlock(text=f"[resource {block.name}: {block.uri}] {about}".rstrip())]
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return [TextBlock(text=f"[resource {resource.uri}]\n{resource.text}")]
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return [TextBlock(text=f"[resource {resource.uri}]"), _blob(resource)]
    return [TextBlock(text=f"[content of an unknown type left out: {type(block).__name__}]")]


def _blob(resource: BlobResourceContents) -> Part:
    media_type = resource.mime_type or "application/octet-stream"
    kind: Any = ImageBlock if media_type.startswith("image/") else FileBlock
    kind = AudioBlock if media_type.startswith("audio/") else kind
    return _media(kind, resource.blob, media_type, "resource")


def _media(kind: Any, data: str, media_type: str, what: str) -> Part:
    try:
        block: Part = kind(data=data, media_type=media_type)
    except ValidationError:
        return TextBlock(text=f"[{what} left out: the server gave no valid media type or no data]")
    return block


def _structured(value: Any, schema: dict[str, Any] | None, texts: list[str]) -> list[Part]:
    """Return the structured content as text, unless a text block repeats it, as servers do for older clients. A result
    that is no object is the one field of an object, which the official SDK names `result`, and other servers `content`.
    """
    parts: list[Part] = []
    wrapped = isinstance(value, dict) and len(value) == 1 and next(iter(value.values())) in texts
    if not wrapped and not any(_is_same(text, value) for text in texts):
        parts.append(TextBlock(text=json.dumps(value, ensure_ascii=False)))
    if schema is not None and (why := unfit(value, schema)):
        problem = why.removeprefix("arguments").lstrip(":. ")[:300]
        parts.append(TextBlock(text=f"[the structured content does not fit the tool's own schema: {problem}]"))
    return parts


def _is_same(text: str, value: Any) -> bool:
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False
