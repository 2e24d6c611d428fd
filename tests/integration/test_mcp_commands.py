"""`holdfast mcp lock`, `diff` and `show`, as processes, and the trust on first use of `worker --dev`."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from holdfast import Agent, Catalog, Secrets
from holdfast.core.agents.mcp_servers import MCP
from holdfast.mcp.lock_file import LOCK, read_lock
from holdfast.mcp.pinning import trust_on_first_use, with_pinned_tools
from tests.support.mcp_tools import PROGRAMS, command

CATALOG = """
from holdfast import MCP, Agent, Catalog

server = MCP("evil", command={command!r}, confined=False, effects={{"look": "read"}})
catalog = Catalog(agents=[Agent(name="clerk", instructions="", tools=["evil_*"])], mcp=[server])
"""


async def holdfast(folder: Path, *words: str) -> tuple[int, str]:
    """Run the command line in a folder; return its exit code and output."""
    root = str(PROGRAMS.parents[2])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        *words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root, "HOLDFAST_CATALOG": "desk:catalog"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.extended
async def test_an_operator_accepts_compares_and_shows(tmp_path: Path) -> None:
    """`lock` writes the file, `diff` exits with 1 once the server has changed and names the field, `show` names effects
    and hints without connecting.
    """
    state = tmp_path / "changed"
    (tmp_path / "desk.py").write_text(CATALOG.format(command=command("hostile", "changes", str(state))))
    assert (await holdfast(tmp_path, "mcp", "diff"))[0] == 1, "not accepted yet"
    code, output = await holdfast(tmp_path, "mcp", "lock")
    assert code == 0, output
    accepted = read_lock(tmp_path / LOCK)
    assert [tool.name for tool in accepted["evil"].tools] == ["look", "pay"]
    assert (await holdfast(tmp_path, "mcp", "diff"))[0] == 0
    (tmp_path / "policy.yaml").write_text("rules:\n  - ask: evil_pay\n  - ask: evil_gone\n")
    code, output = await holdfast(tmp_path, "policy", "check", "policy.yaml")
    assert ("evil_gone" in output, "evil_pay" in output) == (True, False), "a policy is checked with the accepted tools"
    state.touch()
    code, output = await holdfast(tmp_path, "mcp", "diff", "evil")
    assert code == 1
    assert "description" in output
    assert "id_ed25519" in output, "both texts are shown"
    code, output = await holdfast(tmp_path, "mcp", "show", "--json")
    (look, pay) = json.loads(output)["servers"]["evil"]["tools"]
    assert (look["effect"], pay["effect"], pay["hints"]["readOnlyHint"]) == ("read", "unsafe", True)
    assert (await holdfast(tmp_path, "mcp", "lock", "other"))[0] != 0


async def test_development_trusts_the_first_use_alone(tmp_path: Path) -> None:
    """A new server is written to the lock, and a line says so; one that has changed since stays as it was."""
    state = tmp_path / "changed"
    server = MCP("evil", command=command("hostile", "changes", str(state)), confined=False)
    catalog = Catalog(agents=[Agent(name="clerk", instructions="", tools=["evil_pay"])], mcp=[server])
    (line,) = await trust_on_first_use(catalog, tmp_path, Secrets({}))
    assert "evil: 2 tools trusted on first use" in line
    before = (tmp_path / LOCK).read_bytes()
    state.touch()
    assert await trust_on_first_use(catalog, tmp_path, Secrets({})) == []
    assert (tmp_path / LOCK).read_bytes() == before
    assert with_pinned_tools(catalog, tmp_path).tools["evil_pay"].spec.description == "Pay."


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog with MCP servers names the extra that it needs; one without needs nothing."""
    monkeypatch.setattr("holdfast.mcp.pinning.is_installed", lambda extra: False)
    clerk = Agent(name="clerk", instructions="")
    with pytest.raises(Exception, match="packages are missing"):
        with_pinned_tools(Catalog(agents=[clerk], mcp=[MCP("evil", command=["x"])]), tmp_path)
    plain = Catalog(agents=[clerk])
    assert with_pinned_tools(plain, tmp_path) is plain
