"""Who is told: the setting `HOLDFAST_WEBHOOKS`, read and checked."""

import hashlib
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.errors import SettingsError

SLACK = "slack+"


class Receiver(BaseModel):
    """Somebody to tell. The URL is a secret: often it is all that is needed to write there."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(repr=False)
    format: Literal["holdfast", "slack"] = "holdfast"
    """`holdfast`: JSON, signed. `slack`: a message as Slack's incoming webhooks, and others like them, take it."""
    buttons: bool = False
    """For `slack`: buttons that decide; the app has to send them to the gateway's /slack/actions."""

    @property
    def host(self) -> str:
        """What of the URL may be logged."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""

    @property
    def id(self) -> str:
        """Names the receiver where the URL must not be recorded."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    webhooks: tuple[Receiver, ...]


def read_receivers(setting: str, *, insecure: bool = False) -> tuple[Receiver, ...]:
    """Those whom a setting names.

    Args:
        setting: URLs with commas between (`slack+https://…` for Slack's format), or the path of a YAML file:
            `webhooks: [{url: https://…, format: slack}]`.
        insecure: Plain http:// may go beyond this machine.

    Raises:
        SettingsError: It cannot be used; URLs are not shown.
    """
    if "://" in setting:
        receivers = tuple(_receiver(url.strip()) for url in setting.split(",") if url.strip())
    else:
        receivers = _from_file(Path(setting).expanduser())
    for number, receiver in enumerate(receivers, 1):
        if why := _unfit(receiver.url, insecure=insecure):
            raise SettingsError(f"HOLDFAST_WEBHOOKS: receiver {number} ({receiver.host or 'no host'}) {why}.")
    return receivers


def _receiver(url: str) -> Receiver:
    if url.startswith(SLACK):
        return Receiver(url=url.removeprefix(SLACK), format="slack")
    return Receiver(url=url)


def _from_file(path: Path) -> tuple[Receiver, ...]:
    try:
        return _File.model_validate(yaml.safe_load(path.read_text())).webhooks
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"HOLDFAST_WEBHOOKS={path} is no URL, and no file that can be read: {error}.") from None
    except yaml.YAMLError:
        raise SettingsError(f"HOLDFAST_WEBHOOKS={path} is neither YAML nor JSON.") from None
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise SettingsError(f"HOLDFAST_WEBHOOKS={path} cannot be used: {'; '.join(wrong)}.") from None


def _unfit(url: str, *, insecure: bool) -> str:
    """Why nothing is sent there; empty if it can be."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "has no URL that can be read"
    if not parts.hostname or parts.scheme not in ("https", "http"):
        return "has a URL that does not begin with https:// and a host"
    if parts.scheme == "http" and not insecure and not _on_this_machine(parts.hostname):
        return (
            "is at plain http://, where anybody on the way reads it; use https://, or set HOLDFAST_WEBHOOKS_INSECURE=1"
        )
    return ""


def _on_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
