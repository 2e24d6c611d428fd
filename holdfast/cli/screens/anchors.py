"""Anchors on the command line: the ones that `verify` reads."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.settings import Settings
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.audit.evidence.anchors import Anchors


def anchors_from_options(
    settings: Settings, places: Sequence[Path], nodes: Sequence[str], *, in_file: bool = False
) -> "Anchors | None":
    """Return the anchors to read seals from, and the keys of trusted nodes; None if no anchor is named.

    Args:
        settings: Name the anchors if `places` is empty. If that is the embedded one alone, this machine's node is
            trusted, which alone writes to it.
        places: Folders, and files of seals.
        nodes: Public keys, and files with a key at the start of each line; `until TIME` after a key is the time from
            which its seals no longer count.
        in_file: A portable file is verified, which may contain seals.

    Raises:
        SettingsError: A key is invalid, or its file cannot be read; or an anchor is a git repository.
    """
    from holdfast.audit.anchors.setting import check_anchor_path
    from holdfast.audit.evidence.anchors import Anchors
    from holdfast.composition.witnesses import witnesses_of

    trusted = _keys(nodes) if nodes else None
    named = Anchors([check_anchor_path(place) for place in places], trusted) if places else None
    alone = Anchors((), trusted) if nodes and in_file else None
    return named or witnesses_of(settings, trusted) or alone


def known_nodes(settings: Settings, nodes: Sequence[str]) -> dict[str, datetime | None]:
    """Return the keys with which signatures of results are verified: the given ones, or else this machine's.

    Raises:
        SettingsError: A key is invalid, or its file cannot be read.
    """
    from holdfast.composition.witnesses import own_nodes

    return _keys(nodes) if nodes else dict(own_nodes(settings))


def _keys(nodes: Sequence[str]) -> dict[str, datetime | None]:
    from holdfast.core.authority.signatures import PREFIX, check_key

    keys: dict[str, datetime | None] = {}
    for node in nodes:
        lines = [node]
        if not node.startswith(PREFIX):
            try:
                lines = Path(node).expanduser().read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(
                    f"--nodes {node} is neither a public key nor a file that can be read: {error}"
                ) from None
        for line in lines:
            fields = line.split("#")[0].split()
            try:
                if fields:
                    keys[check_key(fields[0])] = _until(fields[1:])
            except ValueError as error:
                raise SettingsError(f"--nodes {node}: {error}") from None
    if not keys:
        raise SettingsError(f"--nodes {', '.join(nodes)} names no key: write one on each line")
    return keys


def _until(fields: Sequence[str]) -> datetime | None:
    """Return the time from which a node's seals no longer count; None for never.

    Raises:
        ValueError: `until` is not followed by a time with its zone.
    """
    if fields[:1] != ["until"]:
        return None
    until = datetime.fromisoformat(fields[1] if len(fields) > 1 else "")
    if until.tzinfo is None:
        raise ValueError(f"{fields[1]} has no time zone: write 2026-11-23T11:20:00Z")
    return until
