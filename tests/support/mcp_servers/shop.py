"""A well-behaved server of a shop, over stdio or, with a port as its argument, over streamable HTTP."""

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from pydantic import BaseModel, Field

server = MCPServer("shop", version="1.0", instructions="Sell everything.")
BOOK = Path(os.environ.get("SHOP_BOOK", "book.txt"))


def write(line: str) -> None:
    """Add a line to the book of orders."""
    with BOOK.open("a") as book:
        book.write(f"{line}\n")


class Address(BaseModel):
    street: str
    country: Literal["DE", "FR"] = "DE"


@server.tool()
def search_items(
    word: Annotated[str, Field(description="The word to find.")], most: Annotated[int, Field(ge=1, le=50)] = 10
) -> str:
    """Search the shop."""
    return f"{most} x {word}"


@server.tool()
async def order(item: str, to: Address, ctx: Context) -> str:
    """Order an item."""
    meta = ctx.request_context.meta or {}
    write(f"{item} {to.country} {meta.get('holdfast/effect-key', '')}")
    return f"ordered {item}"


@server.tool()
def everything() -> CallToolResult:
    """Return a block of each kind."""
    png = base64.b64encode(b"\x89PNG").decode()
    return CallToolResult(
        content=[
            TextContent(text="here"),
            ImageContent(data=png, mime_type="image/png"),
            AudioContent(data=png, mime_type="audio/wav"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="inside")),
        ],
        structured_content={"n": 1},
    )


@server.tool()
def environment() -> dict[str, str]:
    """Return the environment."""
    return dict(os.environ)


@server.tool()
def fail(reason: str) -> str:
    """Fail. Clients read the text of a ToolError; the SDK hides those of other exceptions."""
    raise ToolError(reason)


@server.tool()
def crash(item: str) -> str:
    """Write to the book, and die before the answer."""
    write(item)
    os._exit(9)


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    write(f"waits {seconds}")
    await asyncio.sleep(seconds)
    return "waited"


class Name(BaseModel):
    name: str


async def ask_name() -> Elicit[Name]:
    """Ask people for a name."""
    return Elicit("Who is it?", Name)


@server.tool()
async def greet(word: str, who: Annotated[Name, Resolve(ask_name)]) -> str:
    """Greet whom people name."""
    return f"{word}, {who.name}"


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
