"""Declares the MCP servers of a catalog. `holdfast.mcp` pins their tools, and connects to them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, get_args
from urllib.parse import urlsplit

from holdfast.core.tools.decorator import EffectName
from holdfast.core.tools.effects import Effect
from holdfast.core.trust import Trust
from holdfast.errors import CatalogError

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,23}")
_SECRET: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_EFFECTS: Final = (Effect.READ, Effect.IDEMPOTENT, Effect.UNSAFE)
"""The effects that an operator may give to foreign tools: `verifiable` takes a check, which no server offers."""


@dataclass(frozen=True)
class OAuth:
    """The client credentials with which a worker gets tokens for an MCP server over HTTP.

    OAuth(token_url="https://auth.example/token", client_id="desk", client_secret="${DESK_SECRET}")
    """

    token_url: str
    """The address of the token endpoint; no other address ever gets the credentials."""
    _: KW_ONLY
    client_id: str
    client_secret: str
    """A secret, `${NAME}`: a variable of the worker."""
    scope: str = ""
    """The scopes to ask for, separated by spaces."""

    @property
    def fault(self) -> str:
        """What is wrong with it; empty for nothing."""
        if not _is_safe_url(self.token_url):
            return "oauth=OAuth(token_url=…) is an https:// address without a password; http:// only for this machine"
        if not self.client_id or not _SECRET.fullmatch(self.client_secret):
            return "oauth=OAuth(client_id=…, client_secret=…) has an id, and a secret by its name: ${NAME}"
        return ""


@dataclass(frozen=True)
class MCP:
    """An MCP server whose tools a catalog offers. Give either `command` or `url`.

        MCP("github", url="https://api.githubcopilot.com/mcp/",
            headers={"Authorization": "Bearer ${GITHUB_TOKEN}"},
            effects={"search_*": "read", "get_*": "read"})

    Raises:
        CatalogError: A field is invalid; the message names it.
    """

    name: str
    """The prefix of its tools' names: `github` makes `github_search`. Lower-case letters, digits and hyphens."""
    _: KW_ONLY
    command: Sequence[str] = ()
    """The program and arguments that run it; it is spoken to over stdin and stdout."""
    url: str = ""
    """Its address, for streamable HTTP."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of the command, which is empty otherwise. `${NAME}` is a secret: a variable of the worker."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of each HTTP request; `${NAME}` as in `env`."""
    oauth: OAuth | None = None
    """Client credentials for a `url`; the token is in the memory of the worker alone."""
    effects: Mapping[str, EffectName] = field(default_factory=dict)
    """Patterns of the server's own tool names → effect; the first match counts. All other tools are `unsafe`: the
    server's hints decide nothing."""
    not_done_on_error: Sequence[str] = ()
    """Patterns of tools whose error result means that the effect did not happen. After the error result of any other
    tool with an effect, the outcome is unknown, and a person is asked."""
    tools: Sequence[str] = ("*",)
    """Patterns of the tools that the catalog offers."""
    trust: Trust = "web"
    """Trust level of the results."""
    timeout: float = 120.0
    """Time limit of a call, in seconds."""
    confined: bool = True
    """Run the command in a sandbox (bubblewrap); without one, it does not run."""
    network: bool = False
    """Give a confined command access to the network."""
    folder: Path | str | None = None
    """The only folder that a confined command may write to, and its working directory; None for an empty one."""
    readable: Sequence[Path | str] = ()
    """Further files and folders that a confined command may read."""
    memory_bytes: int = 8 * 1024**3
    """Address space of each process of a confined command; Node.js and V8 reserve several gigabytes."""
    pinned: bool = False
    """Whether the catalog has its tools, from `mcp.lock`. Set by Holdfast."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for why in self._faults():
            raise CatalogError(f"MCP({self.name!r}): {why}")

    def _faults(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name):
            yield "a name has up to 24 lower-case letters, digits and hyphens, and begins with a letter"
        if bool(self.command) == bool(self.url):
            yield "give either command=[…] or url=…"
        if isinstance(self.command, str):
            yield f"command={self.command!r} is one text; list the program and its arguments"
        if self.url and not _is_safe_url(self.url):
            yield "url= is an https:// address without a password; http:// only for this machine"
        if self.env and not self.command:
            yield "env= belongs to a command"
        if self.headers and not self.url:
            yield "headers= belong to a url"
        if self.oauth and (not self.url or any(name.lower() == "authorization" for name in self.headers)):
            yield "oauth= belongs to a url without a header Authorization"
        if self.oauth and self.oauth.fault:
            yield self.oauth.fault
        if unknown := [each for each in self.effects.values() if each not in _EFFECTS]:
            yield f"effect {unknown[0]!r} is not one of {', '.join(_EFFECTS)}"
        if self.trust not in get_args(Trust):
            yield f"trust={self.trust!r} is not one of {', '.join(get_args(Trust))}"
        if not 0 < self.timeout <= 86_400:
            yield f"timeout={self.timeout!r} is not between 0 and 86,400 seconds"

    @property
    def prefix(self) -> str:
        """The beginning of the names of its tools."""
        return f"{self.name}_"

    @property
    def source(self) -> tuple[str, ...]:
        """Its address, or the program and its arguments: what a pin is for."""
        return (self.url,) if self.url else tuple(map(str, self.command))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables of the worker that `env`, `headers` and `oauth` name."""
        oauth = (self.oauth.client_secret,) if self.oauth else ()
        texts = (*self.env.values(), *self.headers.values(), *oauth)
        return tuple(dict.fromkeys(name for text in texts for name in _SECRET.findall(text)))

    def filled(self, texts: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
        """Return `env` or `headers` with the secrets in their places.

        Args:
            texts: `env` or `headers`.
            secrets: The values of `secrets`, by name.
        """
        return {key: _SECRET.sub(lambda match: secrets[match[1]], text) for key, text in texts.items()}

    def offers(self, tool: str) -> bool:
        """Whether the catalog offers a tool, by the server's own name for it."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def effect_of(self, tool: str) -> Effect:
        """Return the effect class of a tool, by the server's own name for it."""
        return Effect(next((e for pattern, e in self.effects.items() if fnmatchcase(tool, pattern)), Effect.UNSAFE))

    def fails_without_effect(self, tool: str) -> bool:
        """Whether an error result of a tool means that its effect did not happen."""
        return any(fnmatchcase(tool, pattern) for pattern in self.not_done_on_error)


def _is_safe_url(url: str) -> bool:
    """Whether an address has TLS, or is this machine's, and holds no password."""
    try:
        parts = urlsplit(url)
        local = (parts.hostname or "") in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False
    named = bool(parts.hostname) and parts.username is None and parts.password is None
    return named and (parts.scheme == "https" or (parts.scheme == "http" and local))
