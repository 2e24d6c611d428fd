"""Reads the secrets that the tools and resources of a catalog declare from the environment."""

from collections.abc import Iterable, Mapping

from holdfast.core.agents.providers import Provider
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.secrets import Secrets
from holdfast.errors import SettingsError


def read_secrets(users: Iterable[Tool | Provider], environ: Mapping[str, str]) -> Secrets:
    """Read the secrets that tools and providers of resources declare.

    Args:
        users: `Catalog.secret_users`.
        environ: Usually `os.environ`; a blank variable counts as missing.

    Raises:
        SettingsError: Some are not set; the message names each one and its users.
    """
    needed: dict[str, list[str]] = {}
    for user in users:
        what = f"tool {user.spec.name!r}" if isinstance(user, Tool) else f"resource {user.name!r}"
        for name in user.secrets:
            needed.setdefault(name, []).append(what)
    missing = {name: users for name, users in needed.items() if not environ.get(name, "").strip()}
    if missing:
        lines = [f"{name} is not set, and {_need(users)} it." for name, users in missing.items()]
        raise SettingsError("\n".join([*lines, "Set it where this worker runs, or remove what needs it."]))
    return Secrets({name: environ[name] for name in needed})


def _need(users: list[str]) -> str:
    return f"{', '.join(users)} {'needs' if len(users) == 1 else 'need'}"
