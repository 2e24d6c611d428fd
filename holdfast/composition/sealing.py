"""Opens the sealer that the settings describe, and the key with which workers sign results."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast.audit.anchors.sealer import CheckpointSigner
from holdfast.audit.anchors.setting import embedded_anchor, read_anchors
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.encryption.node_key import ensure_node_key, node_key_file, open_to_others
from holdfast.errors import SettingsError


@asynccontextmanager
async def open_sealer(settings: Settings, *, namespace: str, say: Callable[[str], None]) -> AsyncIterator[SignRecord]:
    """Seal during a block; without anchors, or if the key cannot be written, nothing is sealed.

    Args:
        settings: From the environment.
        namespace: Temporal's.
        say: Called with a line about the node's key and its anchors.

    Raises:
        SettingsError: An anchor or the node's key cannot be used.
    """
    anchors = read_anchors(settings)
    private = _node_key(settings, say, without="Seals      off") if anchors else None
    if private is None:
        yield unsealed
        return
    if own := embedded_anchor(settings):
        try:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise SettingsError(f"the anchor {own} cannot be made ({reason}): set HOLDFAST_ANCHORS") from None
    async with CheckpointSigner(private, anchors, namespace=namespace) as sealer:
        say(f"Seals      signed by node {sealer.node}, to {', '.join(anchor.name for anchor in anchors)}")
        if open_to_others(settings):
            where = node_key_file(settings)
            say(
                f"Seals      other users can read the node key {where}, and seal in this node's name: chmod 600 {where}"
            )
        yield sealer.seal


def signing_key(settings: Settings, *, say: Callable[[str], None]) -> SigningKey | None:
    """Return this machine's key, with which workers sign results; None if it cannot be made.

    Args:
        settings: From the environment.
        say: Called with a line if it cannot be made.

    Raises:
        SettingsError: The node's key cannot be used.
    """
    private = _node_key(settings, say, without="Results    are not signed")
    return SigningKey(private) if private else None


def _node_key(settings: Settings, say: Callable[[str], None], *, without: str) -> str | None:
    try:
        return ensure_node_key(settings)
    except OSError as error:
        where = node_key_file(settings)
        say(
            f"{without}: the node key {where} cannot be made ({error.strerror or error}). Name a file that can be "
            "written with HOLDFAST_NODE_KEY"
        )
        return None
