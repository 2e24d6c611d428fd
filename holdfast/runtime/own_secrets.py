"""What a process of ours knows that no log may tell: its keys and passwords, by the names of their variables."""

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from holdfast.runtime.encryption_keys import parse_keys
from holdfast.runtime.settings import Settings
from holdfast.secrets import Secrets


def own_secrets(settings: Settings) -> Secrets:
    """The worker's or the CLI's own secrets, to be redacted; no tool gets them from here."""
    return Secrets({}, more=_texts(settings))


def _texts(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.openai_api_key:
        yield "OPENAI_API_KEY", settings.openai_api_key.get_secret_value()
    if settings.openai_base_url:
        yield from _of_url("OPENAI_BASE_URL", settings.openai_base_url)
    if settings.database_url:
        yield from _of_url("DATABASE_URL", settings.database_url)
    if settings.slack_signing_secret:
        yield "HOLDFAST_SLACK_SIGNING_SECRET", settings.slack_signing_secret.get_secret_value()
    if settings.webhook_secret:
        yield "HOLDFAST_WEBHOOK_SECRET", settings.webhook_secret.get_secret_value()
    if settings.webhooks and "://" in settings.webhooks.get_secret_value():
        for url in settings.webhooks.get_secret_value().split(","):
            yield "HOLDFAST_WEBHOOKS", url.strip()
    if settings.encryption_keys:
        for key in parse_keys(settings.encryption_keys.get_secret_value()):
            yield "HOLDFAST_ENCRYPTION_KEYS", key.text
    if settings.fleet_keys:
        for key in parse_keys(settings.fleet_keys.get_secret_value()):
            yield "HOLDFAST_FLEET_KEYS", key.text


def _of_url(name: str, url: str) -> Iterator[tuple[str, str]]:
    """The password, and the part of the URL that has it."""
    parts = urlsplit(url)
    if parts.password:
        yield name, f"{parts.username or ''}:{parts.password}@"
        # One that is the user's or the database's name, as in an example, is a word that any text may hold.
        if parts.password not in (parts.username, parts.hostname, parts.path.strip("/")):
            yield name, parts.password
            yield name, unquote(parts.password)
