"""`doctor` on anchors: whether this machine can seal threads, and write the seals."""

import os

from holdfast.audit.anchors.setting import anchor_folders, read_anchors
from holdfast.config.settings import Settings
from holdfast.core.authority.signatures import public_key
from holdfast.doctor.check import Check
from holdfast.encryption.node_key import find_node_key, node_key_file, open_to_others
from holdfast.errors import SettingsError


def anchors_check(settings: Settings) -> Check | None:
    """Check that seals can be made and written here; None if no anchor is set."""
    if settings.anchors is None:
        return None
    try:
        anchors = read_anchors(settings)
        private = find_node_key(settings)
    except SettingsError as error:
        return Check("anchors", "missing", str(error), "correct HOLDFAST_ANCHORS or HOLDFAST_NODE_KEY")
    for folder in anchor_folders(settings):
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            fix = "create it, or mount it, where the workers run"
            return Check("anchors", "missing", f"{folder} is no folder that can be written here", fix)
    if private is None:
        return Check("anchors", "open", f"no node key in {node_key_file(settings)} yet: the first worker makes it")
    if open_to_others(settings):
        fix = f"chmod 600 {node_key_file(settings)}"
        return Check("anchors", "weak", f"other users can read the node key {node_key_file(settings)}", fix)
    names = ", ".join(anchor.name for anchor in anchors)
    return Check("anchors", "ok", f"node {public_key(private)} seals, to {names}")
