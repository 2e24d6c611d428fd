"""Parses `HOLDFAST_ANCHORS`: folders and URLs, separated by commas.

`embedded` stands for a folder in the state folder: the default with the embedded database, whose owner is then not the
only witness of its content. `off` stands for no anchor.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.anchors.webhook import WebhookAnchor
from holdfast.config.settings import Settings
from holdfast.config.webhooks import Receiver, rejection
from holdfast.errors import SettingsError

EMBEDDED = "embedded"
"""The anchor in the state folder."""
OFF = "off"

_GIT = "git:"


def with_embedded_anchor(settings: Settings) -> Settings:
    """Return the settings of a process that uses the embedded database: with its anchor, unless they name others."""
    return settings if settings.anchors else settings.model_copy(update={"anchors": SecretStr(EMBEDDED)})


def embedded_anchor(settings: Settings) -> Path | None:
    """Return the anchor in the state folder, which may not exist yet; None if the settings do not name it."""
    return _folder(EMBEDDED, settings) if EMBEDDED in _places(settings) else None


def read_anchors(settings: Settings) -> Sequence[FolderAnchor | WebhookAnchor]:
    """Return the anchors that `HOLDFAST_ANCHORS` names, in their order: paths of folders, and `https://` URLs.

    Raises:
        SettingsError: An anchor cannot be used; the message omits its URL.
    """
    anchors: list[FolderAnchor | WebhookAnchor] = []
    for number, place in enumerate(_places(settings), 1):
        if "://" not in place:
            anchors.append(FolderAnchor(_folder(place, settings)))
            continue
        if reason := rejection(place, insecure=settings.webhooks_insecure):
            raise SettingsError(
                f"HOLDFAST_ANCHORS: anchor {number} ({Receiver(url=place).host or 'no host'}) {reason}."
            )
        anchors.append(WebhookAnchor(Receiver(url=place)))
    return anchors


def anchor_folders(settings: Settings) -> list[Path]:
    """Return the folders that `HOLDFAST_ANCHORS` names; webhooks cannot be read.

    The one in the state folder is left out before the first worker has made it.

    Raises:
        SettingsError: An anchor is a git repository.
    """
    folders = [_folder(place, settings) for place in _places(settings) if "://" not in place]
    own = embedded_anchor(settings)
    return [folder for folder in folders if folder != own or folder.is_dir()]


def check_anchor_path(place: Path) -> Path:
    """Check an anchor that was given on a command line, and return it.

    Raises:
        SettingsError: The anchor is a git repository.
    """
    if str(place).startswith(_GIT):
        raise SettingsError(
            f"--anchors {_GIT}… is no longer read: name the folder of the seals in a clone, or a file with those that "
            "were committed (`git log --all --format=%B`)"
        )
    return place


def _places(settings: Settings) -> list[str]:
    setting = settings.anchors.get_secret_value() if settings.anchors else ""
    places = [place.strip() for place in setting.split(",") if place.strip() and setting.strip() != OFF]
    for number, place in enumerate(places, 1):
        if place.startswith(_GIT):  # the rest may contain a secret
            raise SettingsError(
                f"HOLDFAST_ANCHORS: anchor {number} ({_GIT}…) is a git repository, and workers do not commit: name a "
                "folder inside a clone, and have git commit and push it"
            )
    return places


def _folder(place: str, settings: Settings) -> Path:
    if place == EMBEDDED:
        return settings.home / "anchors"
    return Path(place).expanduser().absolute()
