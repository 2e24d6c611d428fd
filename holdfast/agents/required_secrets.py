"""Reads the secrets that the tools of a catalog declare from the environment."""

from collections.abc import Iterable, Mapping

from holdfast.errors import SettingsError
from holdfast.tools.decorator import Tool
from holdfast.tools.secrets import Secrets


def read_secrets(tools: Iterable[Tool], environ: Mapping[str, str]) -> Secrets:
    """Read the secrets that tools declare.

    Args:
        tools: The tools of a worker's catalog.
        environ: Usually `os.environ`; a blank variable counts as missing.

    Raises:
        SettingsError: Some are not set; the message names each one and the tools that need it.
    """
    needed: dict[str, list[str]] = {}
    for tool in tools:
        for name in tool.secrets:
            needed.setdefault(name, []).append(tool.spec.name)
    missing = {name: users for name, users in needed.items() if not environ.get(name, "").strip()}
    if missing:
        lines = [f"{name} is not set, and {_need(users)} it." for name, users in missing.items()]
        raise SettingsError("\n".join([*lines, "Set it where this worker runs, or remove the tool from the catalog."]))
    return Secrets({name: environ[name] for name in needed})


def _need(tools: list[str]) -> str:
    listed = ", ".join(map(repr, tools))
    return f"tool {listed} needs" if len(tools) == 1 else f"tools {listed} need"
