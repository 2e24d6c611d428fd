"""Decides which of a repository's own settings apply to our git: an allow-list of plain values.

Other settings can run programs (filters, hooks, signing) or lead elsewhere (includes, `core.worktree`). None of them
reaches git; `ignored_settings` lists those whose absence a person may notice.
"""

import re
from collections.abc import Mapping, Sequence

from holdfast.workspace.git.git import GitFailed

_ALLOWED = frozenset(
    {"core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.logallrefupdates"}
    | {"core.autocrlf", "core.eol", "core.safecrlf", "core.checkstat", "core.trustctime"}
    | {"core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse", "extensions.objectformat"}
)
"""Settings that control how git compares and stores files."""
_VALUE = re.compile(r"[A-Za-z0-9]{0,20}")

_EXTENSIONS = frozenset(
    {"noop", "noop-v1", "objectformat", "partialclone", "preciousobjects", "relativeworktrees", "worktreeconfig"}
)
"""Repository formats that a view supports. Others store references or objects in another way."""

HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction")
"""The hooks that git would run for a commit."""

_MISSED = {
    "core.hookspath": "hooks (core.hooksPath)",
    "core.excludesfile": "core.excludesFile",
    "core.attributesfile": "core.attributesFile",
    "commit.gpgsign": "signing (commit.gpgSign)",
    "include.path": "include.path",
}
_FILTER = re.compile(r"filter\.(.*)\.(clean|process)", re.DOTALL)

Settings = Sequence[tuple[str, str]]
"""Names and values, in the order of the file. Names are lower-case except for the part between the dots."""


def parse(output: str) -> list[tuple[str, str]]:
    """Parse the output of `git config --list --null`."""
    pairs = (entry.partition("\n") for entry in output.split("\0") if entry)
    return [(name, value if newline else "true") for name, newline, value in pairs]


def require_usable(settings: Settings, *, name: str, linked: bool) -> None:
    """Refuse a repository whose work tree is elsewhere, or whose format is not supported.

    Args:
        settings: The repository's own.
        name: The repository's name, for errors.
        linked: Whether this is a linked work tree, to which `core.bare` and `core.worktree` do not apply.

    Raises:
        GitFailed: The message gives the reason.
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
        raise GitFailed(f"the repository of {name} has an unsupported format (core.repositoryFormatVersion)")
    extensions = {key.removeprefix("extensions.") for key in last if key.startswith("extensions.")}
    if last.get("extensions.refstorage", "files") == "files":
        extensions.discard("refstorage")
    if unknown := sorted(extensions - _EXTENSIONS):
        raise GitFailed(f"the repository of {name} uses an unsupported extension: extensions.{unknown[0]}")


def configuration(settings: Settings) -> str:
    """Build the configuration of a view from the allowed ones of the repository's own settings."""
    kept: Mapping[str, str] = {name: value for name, value in settings if name in _ALLOWED and _VALUE.fullmatch(value)}
    version = 1 if "extensions.objectformat" in kept else 0
    lines = [f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n"]
    for name, value in kept.items():
        section, _, key = name.partition(".")
        lines.append(f'[{section}]\n\t{key} = "{value}"\n')
    return "".join(lines)


def ignored_settings(settings: Settings, hooks: Sequence[str]) -> tuple[str, ...]:
    """Name the hooks, filters and settings that apply to a person's commit but not to ours.

    Args:
        settings: The repository's own.
        hooks: The repository's hooks.
    """
    ignored = [f"hook {hook}" for hook in hooks]
    for name, value in settings:
        if name in _MISSED and value.casefold() != "false":
            ignored.append(_MISSED[name])
        elif match := _FILTER.fullmatch(name):
            ignored.append(f"filter {match[1]}")
    return tuple(dict.fromkeys(ignored))
