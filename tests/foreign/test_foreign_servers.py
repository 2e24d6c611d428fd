"""Foreign MCP servers, of npm and of the official SDKs: every tool of theirs is called, and its content compared.

`make test-mcp` installs them. They are not part of the default tests, and skipped where they are not installed.
"""

import base64
import gzip
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import MCP, FileBlock, ImageBlock, TextBlock
from holdfast.core.authority.server_questions import accept
from holdfast.core.tools.foreign_waits import Asks, Resumed
from holdfast.mcp.limits import ConnectionLost, ServerError
from holdfast.mcp.questions import NOT_ASKED
from tests.support import mcp_tools
from tests.support.mcp_tools import CONTEXT, Caller, caller, command

HERE = Path(__file__).parent
MODULES = HERE / "node_modules" / "@modelcontextprotocol"
PNG = b"\x89PNG"

pytestmark = pytest.mark.slow


def npm(program: str, *arguments: str) -> list[str]:
    """Return the command of a server of npm's; skip the test if it is not installed."""
    file = HERE / program if (HERE / program).is_file() else MODULES / program / "dist" / "index.js"
    if shutil.which("node") is None or not MODULES.is_dir():
        pytest.skip("the servers are not installed: `make test-mcp` installs and calls them")
    return ["node", str(file), *arguments]


def foreign(*words: str) -> MCP:
    """Return a foreign server, whose tools count as reads."""
    return MCP("foreign", command=words, confined=False, effects={"*": "read"}, timeout=60)


def texts(content: Any) -> str:
    """Return the text of a result."""
    return content if isinstance(content, str) else "\n".join(b.text for b in content if isinstance(b, TextBlock))


async def compare(call: Caller, expected: Mapping[str, tuple[dict[str, Any], Any]]) -> None:
    """Call every tool, in this order, and compare its content: with a text, a pattern, or by a function."""
    assert {name.removeprefix("foreign_") for name in call.tools} == set(expected), "every tool is called"
    for name, (arguments, content) in expected.items():
        result = await call(f"foreign_{name}", **arguments)
        if callable(content):
            assert content(result), (name, result)
        elif isinstance(content, re.Pattern):
            assert content.search(texts(result)), (name, result)
        else:
            assert texts(result) == content, name


def has_png(result: Any) -> bool:
    """Whether a result has the beginning of a PNG image."""
    images = [block for block in result if isinstance(block, ImageBlock)]
    return [base64.b64decode(image.data)[:4] for image in images] == [PNG]


def unzipped(result: Any) -> bytes:
    """Return the content of the compressed file in a result."""
    (file,) = [block for block in result if isinstance(block, FileBlock)]
    return gzip.decompress(base64.b64decode(file.data))


async def test_every_tool_of_server_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, images, resources, links and structured content come through; questions on the connection are dismissed."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    async with caller(foreign(*npm("server-everything", "stdio"))) as call:
        needs_task = call.tools.pop("foreign_simulate-research-query")
        weather = {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
        file = {"name": "a.gz", "data": "data:text/plain;base64,aGk=", "outputType": "resource"}
        await compare(
            call,
            {
                "echo": ({"message": "hi"}, "Echo: hi"),
                "get-annotated-message": ({"messageType": "error", "includeImage": True}, has_png),
                "get-env": ({}, lambda result: json.loads(result).keys() == {"PATH"}),
                "get-resource-links": (
                    {"count": 2},
                    re.compile(r"\[resource Text .*: demo://resource/dynamic/text/2\]"),
                ),
                "get-resource-reference": (
                    {"resourceType": "Text", "resourceId": 1},
                    re.compile(r"\[resource demo://resource/dynamic/text/1\]\nResource 1: "),
                ),
                "get-roots-list": ({}, re.compile("no roots are currently configured")),
                "get-structured-content": ({"location": "Chicago"}, lambda result: json.loads(result) == weather),
                "get-sum": ({"a": 1, "b": 2}, "The sum of 1 and 2 is 3."),
                "get-tiny-image": ({}, has_png),
                "gzip-file-as-resource": (file, lambda result: unzipped(result) == b"hi"),
                "toggle-simulated-logging": ({}, re.compile("Started simulated")),
                "toggle-subscriber-updates": ({}, re.compile("Started simulated")),
                "trigger-elicitation-request": ({}, re.compile(re.escape(NOT_ASKED))),
                "trigger-long-running-operation": (
                    {"duration": 0.2, "steps": 2},
                    "Long running operation completed. Duration: 0.2 seconds, Steps: 2.",
                ),
                "trigger-url-elicitation": ({"url": "https://a.example/"}, re.compile(re.escape(NOT_ASKED))),
            },
        )
        call.tools[needs_task.spec.name] = needs_task
        with pytest.raises(ServerError, match="task"):  # tasks of protocol 2025-11-25, which are another thing
            await call("foreign_simulate-research-query", topic="tides")


async def test_every_tool_of_server_filesystem(tmp_path: Path) -> None:
    """Files are written, read, edited, moved and found within the folder that the operator names."""
    root = tmp_path.resolve()
    (root / "dot.png").write_bytes(PNG)
    a, b, sub = str(root / "a.txt"), str(root / "b.txt"), str(root / "sub")
    edit = {"path": a, "edits": [{"oldText": "two", "newText": "2"}]}
    async with caller(foreign(*npm("server-filesystem", str(root)))) as call:
        await compare(
            call,
            {
                "write_file": ({"path": a, "content": "one\ntwo\n"}, f"Successfully wrote to {a}"),
                "read_text_file": ({"path": a, "head": 1}, "one"),
                "read_file": ({"path": a}, "one\ntwo\n"),
                "edit_file": (edit, re.compile(r"-two\n\+2")),
                "create_directory": ({"path": sub}, f"Successfully created directory {sub}"),
                "move_file": ({"source": a, "destination": b}, f"Successfully moved {a} to {b}"),
                "read_multiple_files": ({"paths": [b]}, re.compile(r"b\.txt:\none\n2\n")),
                "list_directory": ({"path": str(root)}, "[FILE] b.txt\n[FILE] dot.png\n[DIR] sub"),
                "list_directory_with_sizes": ({"path": str(root)}, re.compile(r"\[FILE\] b\.txt +6 B")),
                "directory_tree": (
                    {"path": str(root)},
                    lambda result: [each["name"] for each in json.loads(result)] == ["b.txt", "dot.png", "sub"],
                ),
                "read_media_file": ({"path": str(root / "dot.png")}, has_png),
                "search_files": ({"path": str(root), "pattern": "*.txt"}, b),
                "get_file_info": ({"path": b}, re.compile("size: 6")),
                "list_allowed_directories": ({}, f"Allowed directories:\n{root}"),
            },
        )
        with pytest.raises(ServerError, match="outside allowed directories"):
            await call("foreign_read_text_file", path="/etc/passwd")
    assert (root / "b.txt").read_text() == "one\n2\n"


async def answered(call: Caller, monkeypatch: pytest.MonkeyPatch, asked: Asks, name: str, **arguments: Any) -> Any:
    """Answer a question with Ann, as a later activity does."""
    responses = accept(asked.question, "Ann")
    assert isinstance(responses, dict)
    context = replace(CONTEXT, pends=True, resumed=Resumed(responses, asked.state))
    monkeypatch.setattr(mcp_tools, "CONTEXT", context)
    return await call(name, **arguments)


async def test_a_server_of_the_typescript_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK of the newest protocol: schemas, structured content, errors, and a question to people."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    async with caller(foreign(*npm("typescript.mjs"))) as call:
        first = call.tools["foreign_add"].spec.parameters["properties"]["a"]
        assert (first["type"], first["description"]) == ("number", "The first.")
        assert set(call.tools) == {"foreign_add", "foreign_fail", "foreign_greet"}
        assert await call("foreign_add", a=1, b=2) == '{"sum":3}'
        with pytest.raises(ServerError, match="it fails"):
            await call("foreign_fail")
        asked = await call("foreign_greet", word="Hello")
        assert isinstance(asked, Asks)
        assert await answered(call, monkeypatch, asked, "foreign_greet", word="Hello") == "Hello, Ann"


async def test_a_server_of_the_python_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the Python SDK, which seals the state that comes back with the answer."""
    monkeypatch.setattr(mcp_tools, "CONTEXT", replace(CONTEXT, pends=True))
    server = MCP("shop", command=command("shop"), env={"SHOP_BOOK": str(tmp_path / "b")}, confined=False, timeout=60)
    async with caller(server) as call:
        assert {name.removeprefix("shop_") for name in call.tools} == {
            *("search_items", "order", "everything", "environment", "fail", "crash", "wait", "greet")
        }
        assert await call("shop_search_items", word="pen") == "10 x pen"
        assert await call("shop_order", item="pen", to={"street": "Rue 1"}) == "ordered pen"
        assert len(await call("shop_everything")) == 5
        assert "SHOP_BOOK" in json.loads(await call("shop_environment"))
        assert await call("shop_wait", seconds=0) == "waited"
        with pytest.raises(ServerError, match="no pens"):
            await call("shop_fail", reason="no pens")
        asked = await call("shop_greet", word="Hello")
        assert isinstance(asked, Asks)
        assert json.loads(asked.state or "{}")["state"]
        assert await answered(call, monkeypatch, asked, "shop_greet", word="Hello") == "Hello, Ann"
        with pytest.raises(ConnectionLost):
            await call("shop_crash", item="pen")
