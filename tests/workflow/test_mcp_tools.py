"""Tools of MCP servers in whole runs: policy, approvals, the ledger and trust apply as to any tool."""

from pathlib import Path

import psutil
import pytest

from holdfast import MCP, Agent, Catalog, Policy, Secrets, allow, ask
from holdfast.mcp.lock_file import LOCK, read_lock, write_lock
from holdfast.mcp.pinning import read_lists, with_pinned_tools
from holdfast.testing import agent, call, say
from tests.support.mcp_tools import command

pytestmark = pytest.mark.usefixtures("session_server")

RULES = Policy(rules=(allow(tool="shop_search_items"), allow(tool="shop_crash"), ask(tool="shop_order")))


async def pinned_catalog(folder: Path) -> Catalog:
    """Return a catalog with a shop, which was accepted."""
    book = folder / "book.txt"
    server = MCP(
        "shop",
        command=command("shop"),
        env={"SHOP_BOOK": str(book)},
        effects={"search_*": "read"},
        timeout=60,
        confined=False,
    )
    if not (folder / LOCK).exists():
        write_lock(folder / LOCK, await read_lists([server], Secrets({})))
    clerk = Agent(name="clerk", instructions="", policy=RULES, tools=["shop_search_items", "shop_o*", "shop_crash"])
    return with_pinned_tools(Catalog(agents=[clerk], mcp=[server]), folder)


async def test_a_foreign_tool_is_an_ordinary_tool(tmp_path: Path) -> None:
    """A read runs at once, an effect asks people first; the log has the pins, and results the trust level `web`."""
    catalog = await pinned_catalog(tmp_path)
    order = call("shop_order", item="pen", to={"street": "Rue 1"})
    async with agent(catalog, [call("shop_search_items", word="pen"), order, say("Ordered.")]) as run:
        assert (await run.task("Order a pen.")).status == "waiting_approval"
        assert not (tmp_path / "book.txt").exists()
        assert (await run.approve()).status == "completed"
        assert [(each.status, each.text) for each in await run.effects()] == [("ok", "ordered pen")]
        spec = next(event.spec for event in await run.events() if event.type == "agent_loaded")
    pins = read_lock(tmp_path / LOCK)["shop"].pins
    recorded = {tool.name: (tool.pin, tool.trust) for tool in spec.tools}
    assert recorded["shop_order"] == (pins["order"], "web")
    (line,) = (tmp_path / "book.txt").read_text().splitlines()
    item, country, key = line.split()
    assert (item, country, len(key)) == ("pen", "DE", 40), "the call has its effect key"


@pytest.mark.extended
async def test_runs_share_the_server(tmp_path: Path) -> None:
    """The second run calls the process that the first one has started."""
    catalog = await pinned_catalog(tmp_path)
    look = call("shop_search_items", word="pen")
    seen = []
    async with agent(catalog, [look, say("Seen."), look, say("Seen again.")]) as run:
        for _ in range(2):
            assert (await run.task("Look for pens.")).status == "completed"
            seen.append([each.pid for each in psutil.Process().children() if "shop.py" in " ".join(each.cmdline())])
        assert len(set(run.started)) == 2
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


async def test_a_lost_connection_is_an_unknown_outcome(tmp_path: Path) -> None:
    """A server that dies after it has acted is not called again: a person is asked for the outcome."""
    catalog = await pinned_catalog(tmp_path)
    async with agent(catalog, [call("shop_crash", item="pen"), say("Done.")]) as run:
        result = await run.task("Order a pen.")
        assert result.status == "waiting_approval"
        (request,) = await run.pending()
        assert request.kind == "reconcile"
    assert (tmp_path / "book.txt").read_text() == "pen\n"


async def test_a_tool_that_was_accepted_anew_is_not_the_one_that_a_run_was_offered(tmp_path: Path) -> None:
    """A run that was offered the old definition does not call the new one."""
    catalog = await pinned_catalog(tmp_path)
    order = call("shop_order", item="pen", to={"street": "Rue 1"})
    async with agent(catalog, [order, say("Not ordered.")]) as run:
        assert (await run.task("Order a pen.")).status == "waiting_approval"
        tool = catalog.tools["shop_order"]
        # As on a worker that was restarted with another lock.
        object.__setattr__(tool, "spec", tool.spec.model_copy(update={"pin": "another"}))
        assert (await run.approve()).status == "completed"
        (effect,) = await run.effects()
        assert effect.status == "invalid"
        assert "an operator must accept" in effect.text
    assert not (tmp_path / "book.txt").exists()
