"""The node of a process, from its settings: the name, the labels and the key by which runs select it."""

import re
import socket

from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import public_key
from holdfast.core.nodes import Node, read_labels
from holdfast.encryption.node_key import find_node_key


def node_of(settings: Settings) -> Node:
    """Return the node that the settings describe. It has a key if one has been made (`HOLDFAST_NODE_KEY`).

    Raises:
        SettingsError: The file of its key holds none, or others can read it.
    """
    private = find_node_key(settings)
    return Node(
        name=settings.node or host_name(),
        labels=read_labels(settings.node_labels),
        key=public_key(private) if private else "",
    )


def host_name() -> str:
    """Return the host's name in the characters of a node's name."""
    return re.sub("[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64].strip("-_.") or "node"
