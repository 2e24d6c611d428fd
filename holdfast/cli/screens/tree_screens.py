"""Trees of runs on the terminal: `show --tree`, `list --tree`, and the sub-agents in `watch`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from holdfast.cli.exits import OK, UNREACHABLE
from holdfast.cli.screens.costs import cost_text, with_cost
from holdfast.cli.text import brief
from holdfast.config.programs import CLI

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.client.threads import JSON, Threads
    from holdfast.client.trees import Node


async def print_tree(session: "Session", threads: "Threads", thread: str) -> int:
    """Print a thread and all runs below it; return the exit code."""
    from holdfast.client.trees import read_tree

    tree = await read_tree(threads, thread, note=session.note_silence)
    session.output.result(with_costs(tree.view()), tree_screen(tree))
    return UNREACHABLE if any(node.error for _, node in tree.walk()) else OK


def with_costs(view: "JSON") -> "JSON":
    """Return the view of a tree with each run's own `cost` in US dollars; None if it is unknown."""
    return {**with_cost(view), "children": [with_costs(child) for child in view["children"]]}


def tree_screen(tree: "Node") -> Text:
    """Return the lines of a tree: each run below its parent, with its cost and the commands for its open requests."""
    screen = Text()
    for depth, node in tree.walk():
        cost = cost_text(with_cost({"usage": node.usage, "llm": node.llm})) if node.usage else ""
        for line in node_lines(node, depth, cost=cost):
            screen.append(line).append("\n")
    screen.rstrip()
    return screen


def node_lines(node: "Node", depth: int, *, cost: str = "") -> list[Text]:
    """Return the lines of one run of a tree and of its open requests, indented by its depth.

    Args:
        node: The run.
        depth: Its distance from the root.
        cost: Its own cost; empty to leave it out.
    """
    from holdfast.cli.screens.thread_screens import STATUS_STYLES

    indent = "  " * depth
    head = Text.assemble(
        indent,
        (brief(node.thread, 250), "bold"),
        "  ",
        (brief(node.status).replace("_", " "), STATUS_STYLES.get(node.status, "")),
        f"  agent {brief(node.agent or 'not loaded')}, step {node.step}" + (f", {cost}" if cost else ""),
    )
    if node.error:
        return [head, Text(f"{indent}  {brief(str(node.error), 300)}", "yellow")]
    rows = []
    for request in node.pending:
        what = f"request {brief(str(request['request']))}: {brief(str(request['tool']))}"
        rows.append(
            Text.assemble(f"{indent}  ", (what, "bold yellow"), f"  {brief(CLI.command('pending', node.thread), 300)}")
        )
    return [head, *rows]


def as_trees(rows: Sequence["JSON"]) -> list["JSON"]:
    """Order the rows of a list so that each sub-agent comes below the run that started it.

    A sub-agent keeps its position if its root is not among the rows, or is itself a sub-agent: any start may claim a
    root. Each row gets its `depth` below its root.
    """
    roots = {row["thread"] for row in rows if not row.get("root")}
    below: dict[str, list[JSON]] = {}
    tops = []
    for row in rows:
        root = row.get("root")
        depth = _depth(row["thread"], root) if root and root in roots else 0
        with_depth = {**row, "depth": depth}
        if depth and root:
            below.setdefault(root, []).append(with_depth)
        else:
            tops.append(with_depth)
    return [each for top in tops for each in (top, *sorted(below.pop(top["thread"], ()), key=_call_path))]


def indented_row(row: "JSON") -> "JSON":
    """Return the row of a list with its thread id indented by its depth."""
    return {**row, "thread": "  " * min(row["depth"], 20) + row["thread"]}


def _depth(thread: str, root: str) -> int:
    """Return a sub-agent's distance from its root, by their ids; 0 if the ids do not match."""
    numbers = thread.removeprefix(root + ".").split(".") if thread.startswith(root + ".") else []
    return len(numbers) if all(number.isascii() and number.isdigit() for number in numbers) else 0


def _call_path(row: "JSON") -> list[int]:
    """Return the numbers of the calls from the root to a sub-agent, so that sorting puts it right after its parent."""
    return [int(number) for number in row["thread"].split(".")[-row["depth"] :]]
