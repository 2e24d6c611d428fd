"""Content blocks: the parts of messages, in a provider-neutral form.

1. A block has fields that people and programs can read. Data that only its provider understands (a signature, an
   encrypted reasoning item, an id) is in its `provider` part, verbatim and tagged with its issuer.
2. Content that is a single plain text is a string, in Python and in JSON, and never a list with one block.
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
    """Data that a provider issued and must get back unchanged. It is sent to no other provider."""

    issuer: str
    """The `issuer` of the adapter that read it."""
    data: dict[str, Any]
    """JSON, unchanged except for numbers: canonical JSON writes 5.0 as 5, and limits integers to 2^53 - 1."""


class Block(Frozen):
    """Base of all blocks."""

    model_config = ConfigDict(extra="forbid")

    provider: ProviderPart | None = None
    """Data to send back to the provider with this block."""

    def issued_by(self, issuer: str) -> dict[str, Any]:
        """Return the data that `issuer` issued with this block; empty if there is none."""
        return self.provider.data if self.provider and self.provider.issuer == issuer else {}


class TextBlock(Block):
    """Text."""

    type: Literal["text"] = "text"
    text: str


class Media(Block):
    """Content other than text: exactly one of a URL, base64 data, or a provider's id in the `provider` part."""

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
        if self.url and not self.url.startswith(("https://", "http://")):  # a server might read `file://` for anybody
            raise ValueError("a URL begins with https:// or http://")
        if self.data and not self.media_type:
            raise ValueError("`data` needs a `media_type`")
        return self

    @property
    def address(self) -> str:
        """The URL, or the bytes as a data URL; empty for a provider's id."""
        return f"data:{self.media_type};base64,{self.data}" if self.data else self.url

    def content(self) -> bytes:
        """Return the bytes in `data`; empty for a URL or a provider's id.

        Raises:
            ValueError: `data` is not base64.
        """
        return a2b_base64(self.data, strict_mode=True)


class ImageBlock(Media):
    """An image."""

    type: Literal["image"] = "image"
    detail: Literal["", "auto", "low", "high"] = ""
    """The resolution at which the LLM reads the image; empty for the provider's default."""


class FileBlock(Media):
    """A document, such as a PDF."""

    type: Literal["file"] = "file"
    name: str = ""


class AudioBlock(Media):
    """Speech or another sound."""

    type: Literal["audio"] = "audio"
    transcript: str = ""
    """The words spoken in it, if the provider transcribed them."""


class ReasoningBlock(Block):
    """The LLM's reasoning before its answer, as far as the provider shows it."""

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
    """A description for people and for other providers' LLMs."""


class ToolCall(Block):
    """One tool call, as the LLM requested it."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    """The provider's id of the call, or ours if the provider gave none."""
    name: str
    """The tool's name, verbatim."""
    arguments: str
    """JSON text: in a message as the LLM wrote it; from `ToolCallRequested` on canonical, as the tool reads it."""

    @property
    def digest(self) -> str:
        """Digest of the tool's name and the text of the arguments; two spellings of the same JSON differ.

        It covers the text instead of parsed values, because a parser may round ids beyond 2^53 to the same number.
        """
        return _call_digest(self.name, self.arguments)


@lru_cache(maxsize=8)  # each event of a call requests the digest
def _call_digest(name: str, arguments: str) -> str:
    return digest(["call/1", name, arguments])


_InputBlock = TextBlock | ImageBlock | FileBlock | AudioBlock
OutputBlock = TextBlock | ReasoningBlock | RefusalBlock | ToolCall | ImageBlock | FileBlock | AudioBlock | OtherBlock
InputBlocks = Annotated[tuple[Annotated[_InputBlock, Field(discriminator="type")], ...], Field(fail_fast=True)]
OutputBlocks = Annotated[tuple[Annotated[OutputBlock, Field(discriminator="type")], ...], Field(fail_fast=True)]


def _form_of(value: Any) -> str:
    return "text" if isinstance(value, str) else "blocks"


def _plain(content: Any) -> Any:
    """Replace a single plain text block by its text."""
    if len(content) == 1 and isinstance(content[0], TextBlock) and content[0].provider is None:
        return content[0].text
    return content or ""


def _dumped(content: Any) -> Any:
    """Serialise blocks without their defaults, except for the type."""
    if isinstance(content, str):
        return content
    return [{"type": block.type, **block.model_dump(mode="json", exclude_defaults=True)} for block in content]


Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[InputBlocks, Tag("blocks")],
    Discriminator(_form_of),
    AfterValidator(_plain),
    PlainSerializer(_dumped),
]
"""Input of the LLM: a person's message or a tool's result."""

ReplyContent = Annotated[
    Annotated[str, Tag("text")] | Annotated[OutputBlocks, Tag("blocks")],
    Discriminator(_form_of),
    AfterValidator(_plain),
    PlainSerializer(_dumped),
]
"""Output of the LLM, in the order in which it was written."""


def blocks_of(content: Content | ReplyContent) -> OutputBlocks:
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
    """Describe the parts of a message other than text (`2 images, file`); empty if it has only text."""
    kinds = Counter(block.type for block in blocks_of(content) if not isinstance(block, TextBlock))
    return ", ".join(kind if count == 1 else f"{count:,} {kind}s" for kind, count in kinds.most_common())


def with_heading(heading: str, content: Content) -> Content:
    """Put text before content."""
    return heading + content if isinstance(content, str) else (TextBlock(text=heading), *content)


def strip_heading(heading: str, content: Content) -> Content:
    """Undo `with_heading`; return content that has no such heading as it is."""
    if not heading or isinstance(content, str):
        return content.removeprefix(heading) if isinstance(content, str) else content
    first = content[0] if content else None
    return content[1:] if isinstance(first, TextBlock) and first.text == heading else content
