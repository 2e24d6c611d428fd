"""Parses `HOLDFAST_ANCHORS`: folders, URLs and git repositories, separated by commas."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.errors import SettingsError
from holdfast.runtime.anchors.folder import FolderAnchor
from holdfast.runtime.anchors.git import GitAnchor, git_folder
from holdfast.runtime.anchors.git_remote import Remote
from holdfast.runtime.anchors.webhook import WebhookAnchor
from holdfast.runtime.config.settings import Settings
from holdfast.runtime.config.webhooks import Receiver, refusal
from holdfast.runtime.memory.git import GitFailed

GIT = "git:"
"""Begins the name of a git repository."""

_PLAIN = re.compile(r"[!-~]+")


def read_anchors(settings: Settings) -> Sequence[FolderAnchor | WebhookAnchor | GitAnchor]:
    """Return the anchors that `HOLDFAST_ANCHORS` names, in their order.

    They are paths of folders; `https://` URLs; and `git:` with a path, or with an `https://` or `ssh://` URL.

    Raises:
        SettingsError: A URL cannot be used; the message does not show it.
    """
    anchors: list[FolderAnchor | WebhookAnchor | GitAnchor] = []
    for number, place in enumerate(_places(settings), 1):
        url = place.removeprefix(GIT)
        if "://" not in url:
            anchors.append(GitAnchor(_folder(url)) if url != place else FolderAnchor(_folder(place)))
            continue
        if why := _refusal(url, git=url != place, insecure=settings.webhooks_insecure):
            raise SettingsError(f"HOLDFAST_ANCHORS: anchor {number} ({Receiver(url=url).host or 'no host'}) {why}.")
        if url != place:
            own = _own_repository(settings.home, url)
            anchors.append(GitAnchor(own, Remote(url, own)))
        else:
            anchors.append(WebhookAnchor(Receiver(url=url)))
    return anchors


def anchor_places(settings: Settings) -> list[Path]:
    """Return what of the anchors that `HOLDFAST_ANCHORS` names can be read here.

    They are folders and repositories; of a repository on another machine, our own with what was committed here, if
    there is one. Webhooks cannot be read.
    """
    found: list[Path] = []
    for place in _places(settings):
        url = place.removeprefix(GIT)
        if "://" not in url:
            found.append(_folder(url))
        elif url != place and (own := _own_repository(settings.home, url)).is_dir():
            found.append(own)
    return found


def given_place(place: Path) -> Path:
    """Return the folder, repository or file that was named on a command line.

    Raises:
        SettingsError: It is a repository, by its name, and there is none.
    """
    name = str(place)
    if not name.startswith(GIT):
        return place
    try:
        return git_folder(_folder(name.removeprefix(GIT)))
    except GitFailed as error:
        raise SettingsError(f"{error}; of one on another machine, name a clone") from None


def _refusal(url: str, *, git: bool, insecure: bool) -> str:
    """Return why a URL is refused; empty if it is not."""
    if not git or not url.startswith("ssh://"):
        return refusal(url, insecure=insecure)
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return "" if host and _PLAIN.fullmatch(url) else "has a malformed URL"


def _own_repository(home: Path, url: str) -> Path:
    return home / "anchors" / f"{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.git"


def _places(settings: Settings) -> list[str]:
    setting = settings.anchors.get_secret_value() if settings.anchors else ""
    return [place.strip() for place in setting.split(",") if place.strip()]


def _folder(place: str) -> Path:
    return Path(place).expanduser().absolute()
