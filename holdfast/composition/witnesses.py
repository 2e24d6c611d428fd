"""The witnesses that a verifier has by the settings: anchors, and this machine's own node."""

from collections.abc import Mapping
from datetime import datetime

from holdfast.audit.anchors.setting import EMBEDDED, anchor_folders
from holdfast.audit.evidence.anchors import Anchors
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import public_key
from holdfast.encryption.node_key import find_node_key


def own_nodes(settings: Settings) -> Mapping[str, datetime | None]:
    """Return the public key of this machine's node; empty if it has none yet.

    Raises:
        SettingsError: The key cannot be read.
    """
    private = find_node_key(settings)
    return {public_key(private): None} if private else {}


def witnesses_of(settings: Settings, nodes: Mapping[str, datetime | None] | None = None) -> Anchors | None:
    """Return the anchors of the settings that can be read from here; None if there are none.

    Args:
        settings: The settings.
        nodes: The nodes whose seals count; None for any, or in the embedded anchor for this machine's, which alone
            writes there.

    Raises:
        SettingsError: An anchor is a git repository, or the node's key cannot be read.
    """
    folders = anchor_folders(settings)
    if nodes is None and settings.anchors and settings.anchors.get_secret_value().strip() == EMBEDDED:
        nodes = own_nodes(settings) or None
    return Anchors(folders, nodes) if folders else None
