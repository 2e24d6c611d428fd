"""Which of a repository's own settings count for our git: an allow-list of plain values; and which are not heeded.

What a repository's configuration may name beside them runs programs (filters, hooks, signing), or leads elsewhere
(includes, `core.worktree`). Nothing of that reaches git; what a person may miss of it is said.
"""

import re
from collections.abc import Mapping, Sequence

from holdfast.runtime.memory.git import GitFailed

_ALLOWED = frozenset(
    {"core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.logallrefupdates"}
    | {"core.autocrlf", "core.eol", "core.safecrlf", "core.checkstat", "core.trustctime"}
    | {"core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse", "extensions.objectformat"}
)
"""What says how files are to be compared and stored."""
_VALUE = re.compile(r"[A-Za-z0-9]{0,20}")

_EXTENSIONS = frozenset(
    {"noop", "noop-v1", "objectformat", "partialclone", "preciousobjects", "relativeworktrees", "worktreeconfig"}
)
"""Formats of a repository that a view of it can be made of. Others keep references or objects in another way."""

HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction")
"""Those that git would run for a commit."""

_MISSED = {
    "core.hookspath": "hooks (core.hooksPath)",
    "core.excludesfile": "core.excludesFile",
    "core.attributesfile": "core.attributesFile",
    "commit.gpgsign": "signing (commit.gpgSign)",
    "include.path": "include.path",
}
_FILTER = re.compile(r"filter\.(.*)\.(clean|process)", re.DOTALL)

Settings = Sequence[tuple[str, str]]
"""Name, lower-case but for what stands between its dots, and value; in the order of the file."""


def parse(listed: str) -> list[tuple[str, str]]:
    """What `git config --list --null` printed."""
    pairs = (entry.partition("\n") for entry in listed.split("\0") if entry)
    return [(name, value if newline else "true") for name, newline, value in pairs]


def require_usable(settings: Settings, *, name: str, linked: bool) -> None:
    """Refuse a repository that is not what its git folder's place says, or that we cannot read.

    Args:
        settings: Its own.
        name: For errors.
        linked: It has a linked work tree, which `core.bare` and `core.worktree` do not concern.

    Raises:
        GitFailed: The text says what stands against it.
    """
    last = dict(settings)
    if not linked and "core.worktree" in last:
        raise GitFailed(
            f"the repository of {name} names another work tree (core.worktree), whose files are not the agent's; "
            "give the agent a clone"
        )
    if not linked and last.get("core.bare", "false").casefold() not in ("false", "no", "off", "0", ""):
        raise GitFailed(f"{name} is a bare repository (core.bare); give the agent a work tree")
    if last.get("core.repositoryformatversion", "0").strip() not in ("0", "1"):
        raise GitFailed(f"the repository of {name} has a format that is not known here (core.repositoryFormatVersion)")
    extensions = {key.removeprefix("extensions.") for key in last if key.startswith("extensions.")}
    if last.get("extensions.refstorage", "files") == "files":
        extensions.discard("refstorage")
    if unknown := sorted(extensions - _EXTENSIONS):
        raise GitFailed(f"the repository of {name} uses what is not known here: extensions.{unknown[0]}")


def configuration(settings: Settings) -> str:
    """The configuration of a view: of the repository's own settings, those that are allowed."""
    kept: Mapping[str, str] = {name: value for name, value in settings if name in _ALLOWED and _VALUE.fullmatch(value)}
    version = 1 if "extensions.objectformat" in kept else 0
    lines = [f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n"]
    for name, value in kept.items():
        section, _, key = name.partition(".")
        lines.append(f'[{section}]\n\t{key} = "{value}"\n')
    return "".join(lines)


def not_heeded(settings: Settings, hooks: Sequence[str]) -> tuple[str, ...]:
    """What of a repository would have taken part in a commit of a person's, and does not in ours; in words.

    Args:
        settings: Its own.
        hooks: Those that it has.
    """
    found = [f"hook {hook}" for hook in hooks]
    for name, value in settings:
        if name in _MISSED and value.casefold() != "false":
            found.append(_MISSED[name])
        elif match := _FILTER.fullmatch(name):
            found.append(f"filter {match[1]}")
    return tuple(dict.fromkeys(found))
