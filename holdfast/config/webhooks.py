"""Receivers of notifications: parses and checks the setting `HOLDFAST_WEBHOOKS`. Activities send the notifications."""

import hashlib
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.config.collectors import on_this_machine
from holdfast.core.run.contracts.record import Occasion
from holdfast.errors import SettingsError

SLACK = "slack+"


class Receiver(BaseModel):
    """A receiver of notifications. Its URL is a secret: often anybody who has it can post there."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(repr=False)
    format: Literal["holdfast", "slack"] = "holdfast"
    """`holdfast`: signed JSON. `slack`: a message for Slack's incoming webhooks and compatible services."""
    buttons: bool = False
    """For `slack`: add buttons for decisions; the Slack app must send them to the gateway's /slack/actions."""

    occasions: tuple[Occasion, ...] | None = None
    """The occasions of which it is notified; None for all, for `slack` without `message_awaited`."""

    def wants(self, occasion: Occasion) -> bool:
        """Whether to notify it of this occasion. People who read a channel to decide do not read every chat."""
        if self.occasions is not None:
            return occasion in self.occasions
        return self.format != "slack" or occasion != "message_awaited"

    @property
    def host(self) -> str:
        """The part of the URL that may be logged."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""

    @property
    def id(self) -> str:
        """Identifies the receiver without its URL, which must not be recorded."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    webhooks: tuple[Receiver, ...]


def read_receivers(setting: str, *, insecure: bool = False) -> tuple[Receiver, ...]:
    """Parse the receivers of a setting.

    Args:
        setting: Comma-separated URLs (`slack+https://…` for Slack's format), or the path of a YAML file:
            `webhooks: [{url: https://…, format: slack}]`.
        insecure: Allow plain http:// to other machines.

    Raises:
        SettingsError: The setting is invalid; the message shows no URL.
    """
    if "://" in setting:
        receivers = tuple(_receiver(url.strip()) for url in setting.split(",") if url.strip())
    else:
        receivers = _from_file(Path(setting).expanduser())
    for number, receiver in enumerate(receivers, 1):
        if why := rejection(receiver.url, insecure=insecure):
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
        raise SettingsError(
            f"HOLDFAST_WEBHOOKS={path} is neither a URL nor a readable file: {error}. "
            "Write comma-separated URLs, or the path of a YAML file."
        ) from None
    except yaml.YAMLError:
        raise SettingsError(f"HOLDFAST_WEBHOOKS={path} is neither YAML nor JSON.") from None
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise SettingsError(f"HOLDFAST_WEBHOOKS={path} is not valid: {'; '.join(wrong)}.") from None


def rejection(url: str, *, insecure: bool) -> str:
    """Return why a URL is rejected; empty if it is accepted."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "has a malformed URL"
    if not parts.hostname or parts.scheme not in ("https", "http"):
        return "has a URL that does not begin with https:// and a host"
    if parts.scheme == "http" and not insecure and not on_this_machine(parts.hostname):
        return (
            "uses plain http://, which anybody on the network can read; use https://, or set "
            "HOLDFAST_WEBHOOKS_INSECURE=1"
        )
    return ""
