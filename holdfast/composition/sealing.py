"""Opens the sealer that the settings describe."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast.audit.anchors.sealer import CheckpointSigner
from holdfast.audit.anchors.setting import read_anchors
from holdfast.config.settings import Settings
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.encryption.node_key import ensure_node_key, node_key_file, open_to_others


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
    if not anchors:
        yield unsealed
        return
    try:
        private = ensure_node_key(settings)
    except OSError as error:
        where = node_key_file(settings)
        say(
            f"Seals      off: the node key {where} cannot be made ({error.strerror or error}). Name a file that can be "
            "written with HOLDFAST_NODE_KEY"
        )
        yield unsealed
        return
    async with CheckpointSigner(private, anchors, namespace=namespace) as sealer:
        say(f"Seals      signed by node {sealer.node}, to {', '.join(anchor.name for anchor in anchors)}")
        if open_to_others(settings):
            where = node_key_file(settings)
            say(
                f"Seals      other users can read the node key {where}, and seal in this node's name: chmod 600 {where}"
            )
        yield sealer.seal
