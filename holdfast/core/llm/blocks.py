"""Content blocks: what messages consist of, in a form that belongs to no provider's API.

1. A block has what people and programs can read. What only its provider understands (a signature, an encrypted
   reasoning item, an id) is in its `provider` part, verbatim and tagged with its issuer.
2. Content that is one plain text is that text: in Python and in JSON it has no other form.
3. Adapters (`holdfast.core.llm.adapters`) translate blocks to and from an API's format.
"""

from binascii import a2b_base64
from collections import Counter
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, PlainSerializer, Tag, model_validator

from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen


class ProviderPart(Frozen):
    """What a provider issued and has to be sent back unchanged. Nobody else is sent it."""

    issuer: str
    """Who issued it: the `issuer` of the adapter that read it."""
    data: dict[str, Any]
    """JSON, unchanged but for numbers: canonical JSON writes 5.0 as 5, and limits integers to 2^53 - 1."""


class Block(Frozen):
    """What all blocks have."""

    model_config = ConfigDict(extra="forbid")

    provider: ProviderPart | None = None
    """What goes back to the provider with this block."""

    def issued_by(self, issuer: str) -> dict[str, Any]:
        """Return what `issuer` issued with this block; empty if that is nothing."""
        return self.provider.data if self.provider and self.provider.issuer == issuer else {}


class TextBlock(Block):
    """Text."""

    type: Literal["text"] = "text"
    text: str


class Media(Block):
    """What is not text: by URL, as base64, or by a provider's id in the `provider` part; exactly one of them."""

    url: str = ""
    data: str = ""
    """The bytes in base64 (RFC 4648, with padding)."""
    media_type: str = Field(default="", pattern=r"^([\w.+-]+/[\w.+-]+)?$")
    """The media type, such as `image/png`; required with `data`."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.url) + bool(self.data) + (self.provider is not None and not self.data and not self.url) != 1:
            raise ValueError("give either `url` or `data`")
        if self.url.startswith("data:"):
            raise ValueError("give `data` and `media_type` instead of a data URL")
        if self.url and not self.url.startswith(("https://", "http://")):  # a server may read `file://` for anybody
            raise ValueError("a URL begins with https:// or http://")
        if self.data and not self.media_type:
            raise ValueError("`data` needs a `media_type`")
        return self

    @property
    def address(self) -> str:
        """The URL, or the bytes as a data URL; empty for a provider's id."""
        return f"data:{self.media_type};base64,{self.data}" if self.data else self.url

    def content(self) -> bytes:
        """Return the bytes in `data`; none for a URL or a provider's id.

        Raises:
            ValueError: They are not base64.
        """
        return a2b_base64(self.data, strict_mode=True)


class ImageBlock(Media):
    """An image."""

    type: Literal["image"] = "image"
    detail: Literal["", "auto", "low", "high"] = ""
    """How closely the LLM is to look; empty for the provider's default."""


class FileBlock(Media):
    """A document, such as a PDF."""

    type: Literal["file"] = "file"
    name: str = ""


class AudioBlock(Media):
    """Speech or another sound."""

    type: Literal["audio"] = "audio"
    transcript: str = ""
    """What is said in it, where the provider wrote it down."""


class ReasoningBlock(Block):
    """What the LLM thought before it answered, as far as the provider shows it."""

    type: Literal["reasoning"] = "reasoning"
    text: str = ""


class RefusalBlock(Block):
    """The LLM declined to answer."""

    type: Literal["refusal"] = "refusal"
    text: str


class OtherBlock(Block):
    """A part of a reply that has no neutral form, such as a search that the provider ran itself."""

    type: Literal["other"] = "other"
    text: str = ""
    """What it is, for people and for other providers' LLMs."""


class ToolCall(Block):
    """One tool call, as the LLM requested it."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    """The provider's id of the call, or ours if the provider gave none."""
    name: str
    """The tool's name, verbatim."""
    arguments: str
    """JSON text: in a message as the LLM wrote it; in `ToolCallRequested` and later canonical, as the tool reads it."""

    @property
    def digest(self) -> str:
        """Digest of the tool's name and the arguments' text; two spellings of the same JSON differ.

        The text, not the number that a parser makes of it: ids beyond 2^53 must not coincide.
        """
        return _call_digest(self.name, self.arguments)


@lru_cache(maxsize=8)  # a call is digested at each of its events
def _call_digest(name: str, arguments: str) -> str:
    return digest(["call/1", name, arguments])


_Heard = TextBlock | ImageBlock | FileBlock | AudioBlock
SaidBlock = TextBlock | ReasoningBlock | RefusalBlock | ToolCall | ImageBlock | FileBlock | AudioBlock | OtherBlock
HeardBlocks = Annotated[tuple[Annotated[_Heard, Field(discriminator="type")], ...], Field(fail_fast=True)]
SaidBlocks = Annotated[tuple[Annotated[SaidBlock, Field(discriminator="type")], ...], Field(fail_fast=True)]


def _form_of(value: Any) -> str:
    return "text" if isinstance(value, str) else "blocks"


def _plain(content: Any) -> Any:
    """One plain text block is its text."""
    if len(content) == 1 and isinstance(content[0], TextBlock) and content[0].provider is None:
        return content[0].text
    return content or ""


def _dumped(content: Any) -> Any:
    """Blocks leave their defaults out, but for the type."""
    if isinstance(content, str):
        return content
    return [{"type": block.type, **block.model_dump(mode="json", exclude_defaults=True)} for block in content]


Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[HeardBlocks, Tag("blocks")],
    Discriminator(_form_of),
    AfterValidator(_plain),
    PlainSerializer(_dumped),
]
"""What the LLM reads: a person's message or a tool's result."""

ReplyContent = Annotated[
    Annotated[str, Tag("text")] | Annotated[SaidBlocks, Tag("blocks")],
    Discriminator(_form_of),
    AfterValidator(_plain),
    PlainSerializer(_dumped),
]
"""What the LLM writes, in its order."""


def blocks_of(content: Content | ReplyContent) -> SaidBlocks:
    """Return content as blocks."""
    if isinstance(content, str):
        return (TextBlock(text=content),) if content else ()
    return content


def text_of(content: Content | ReplyContent) -> str:
    """Return the text of a message, with the type of each other block in brackets."""
    if isinstance(content, str):
        return content
    return "".join(block.text if isinstance(block, TextBlock) else f"[{block.type}]" for block in content)


def more_than_text(content: Content) -> str:
    """Describe what a message holds besides text (`2 images, file`); empty if it is text alone."""
    kinds = Counter(block.type for block in blocks_of(content) if not isinstance(block, TextBlock))
    return ", ".join(kind if count == 1 else f"{count:,} {kind}s" for kind, count in kinds.most_common())


def with_heading(heading: str, content: Content) -> Content:
    """Put text before content."""
    return heading + content if isinstance(content, str) else (TextBlock(text=heading), *content)
