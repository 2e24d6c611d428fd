"""Screens of the verbs for MCP servers. All text of a server is shown as visible characters, and cut."""

from collections.abc import Mapping, Sequence

from rich.text import Text

from holdfast.cli.text import brief
from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.base.canonical import canonical
from holdfast.mcp.pins import Difference, PinnedServer, PinnedTool, offered_names


def differences_screen(
    found: Mapping[str, PinnedServer],
    changes: Mapping[str, Sequence[Difference] | None],
    accepted: Mapping[str, PinnedServer],
) -> Text:
    """Return how each server differs from the lock; None stands for one that was not in it."""
    screen = Text()
    for name, server in found.items():
        changed = changes[name]
        screen.append(brief(name, 100), "bold")
        screen.append(f"  {brief(server.name, 100)} {brief(server.version, 50)}  {len(server.tools)} tools  ")
        if changed is None:
            screen.append("new\n", "yellow")
            changed = [Difference(subject=tool.name, what="added") for tool in server.tools]
        elif not changed:
            screen.append("as accepted\n", "green")
        else:
            screen.append("changed\n", "red")
        before = accepted.get(name)
        for each in changed:
            screen.append(f"  {each.what:<12}  {brief(each.subject or 'the server itself', 128)}\n")
            if each.subject and each.what not in ("added", "removed") and before is not None:
                screen.append(_fields(each, before, server), "dim")
    return screen


def _fields(change: Difference, before: PinnedServer, now: PinnedServer) -> str:
    old = next((tool for tool in before.tools if tool.name == change.subject), None)
    new = next((tool for tool in now.tools if tool.name == change.subject), None)
    if old is None or new is None or old == new:
        return ""
    lines = []
    for field in change.what.split(", "):
        texts = [_text(tool, field) for tool in (old, new)]
        begin = _first_difference(*texts)
        lines += [f"    {sign} {field}: {_from(begin, text)}\n" for sign, text in zip("-+", texts, strict=True)]
    return "".join(lines)


def _first_difference(old: str, new: str) -> int:
    """Return where two texts begin to differ, and a few words before that."""
    common = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    return max(0, (min(len(old), len(new)) if common is None else common) - 40)


def _from(begin: int, text: str) -> str:
    return f"{'…' if begin else ''}{brief(text[begin:], 300)}"


def _text(tool: PinnedTool, field: str) -> str:
    value = tool.model_dump(mode="json")[field]
    return value if isinstance(value, str) else canonical(value).decode()


def servers_screen(servers: Sequence[MCP], accepted: Mapping[str, PinnedServer]) -> Text:
    """Return the accepted tools of servers, with their effects and hints."""
    screen = Text()
    for server in servers:
        pinned = accepted[server.name]
        names = offered_names(server, pinned.tools)
        screen.append(brief(server.name, 100), "bold")
        screen.append(f"  {brief(' '.join(pinned.source), 200)}  digest {pinned.digest[:16]}\n")
        for tool in pinned.tools:
            screen.append(f"  {brief(names.get(tool.name, f'{tool.name} (not offered)'), 80):<40}  ")
            screen.append(f"{server.effect_of(tool.name).value:<10}  ")
            hints = ", ".join(f"{key}={value}" for key, value in tool.annotations.items())
            screen.append(f"{brief(tool.description or tool.title, 80)}")
            screen.append(f"  [hints: {brief(hints, 200)}]\n" if hints else "\n", "dim")
    return screen
