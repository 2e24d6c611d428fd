"""Parses `HOLDFAST_ANCHORS`: folders and URLs, separated by commas."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runtime.anchors.folder import FolderAnchor
from holdfast.runtime.anchors.webhook import WebhookAnchor
from holdfast.runtime.config.webhooks import Receiver, refusal


def read_anchors(setting: str, *, insecure: bool = False) -> Sequence[FolderAnchor | WebhookAnchor]:
    """Return the anchors that a setting names.

    Args:
        setting: Comma-separated: paths of folders, and `https://` URLs.
        insecure: Allow plain http:// to other machines.

    Raises:
        SettingsError: A URL cannot be used; the message does not show it.
    """
    anchors: list[FolderAnchor | WebhookAnchor] = []
    for number, place in enumerate(_places(setting), 1):
        if "://" not in place:
            anchors.append(FolderAnchor(_folder(place)))
            continue
        receiver = Receiver(url=place)
        if why := refusal(place, insecure=insecure):
            raise SettingsError(f"HOLDFAST_ANCHORS: anchor {number} ({receiver.host or 'no host'}) {why}.")
        anchors.append(WebhookAnchor(receiver))
    return anchors


def anchor_folders(setting: str) -> list[Path]:
    """Return the folders that a setting names."""
    return [_folder(place) for place in _places(setting) if "://" not in place]


def _places(setting: str) -> list[str]:
    return [place.strip() for place in setting.split(",") if place.strip()]


def _folder(place: str) -> Path:
    return Path(place).expanduser().absolute()
