"""`notify`: tell those who are elsewhere that a request is open, or that a run has ended.

1. Each receiver is told until it says 2xx, or refuses for good (4xx but for 408 and 429). Temporal tries again.
2. Who was told is kept in the heartbeat, so that a retry tells only the others. A worker that dies at the wrong moment
   tells somebody twice, with the same `Idempotency-Key`: thread and position.
3. No redirect is followed: a notice goes where the setting says, and nowhere else.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Self
from urllib.parse import quote

import httpx2
import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.calling_run import calling_thread
from activities.notify_formats import Links, encode_notice
from activities.retry_after import retry_after
from holdfast.run.contracts import Notice, Notified
from holdfast.runtime.config.settings import Settings
from holdfast.runtime.config.webhooks import Receiver, read_receivers

RECEIVER_SECONDS = 8.0
"""How long a receiver may take. All are told at the same time, and the whole has 30 s (`workflows/calls.py`)."""
TRANSIENT = (408, 429)

log = structlog.get_logger(__name__)


class Notifier:
    """Tells receivers.

    Args:
        receivers: Whom; nobody where the worker has no webhooks.
        secret: Signs what they are told; None to leave it unsigned.
        links: Where to look and to decide.
    """

    def __init__(
        self, receivers: Sequence[Receiver] = (), *, secret: str | None = None, links: Links | None = None
    ) -> None:
        self.receivers = tuple(receivers)
        self._secret = secret
        self._links = links or Links()
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client:
            await self._client.aclose()

    @activity.defn
    async def notify(self, notice: Notice) -> Notified:
        """See `holdfast.run.contracts.notify`."""
        past = activity.info().heartbeat_details
        done: dict[str, bool] = dict(past[0]) if past else {}  # receiver → whether it took the notice, or refused it
        failures: list[_NotNow] = []

        async def tell(receiver: Receiver) -> None:
            try:
                done[receiver.id] = await self._tell(receiver, notice)
            except _NotNow as failure:
                failures.append(failure)
            else:
                activity.heartbeat(done)

        await asyncio.gather(*(tell(receiver) for receiver in self.receivers if receiver.id not in done))
        if failures:
            raise ApplicationError(
                f"not told yet: {'; '.join(map(str, failures))}",
                type="ReceiverAway",
                next_retry_delay=max((failure.delay for failure in failures if failure.delay), default=None),
            )
        return Notified(receivers=sum(done.values()))

    async def _tell(self, receiver: Receiver, notice: Notice) -> bool:
        """Tell one receiver; False where it refused for good.

        Raises:
            _NotNow: It is away, and is to be told again.
        """
        thread = calling_thread()
        namespace = activity.info().namespace
        body = encode_notice(notice, receiver, thread=thread, links=self._links, namespace=namespace)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            "Idempotency-Key": f"{quote(thread, safe='')}:{notice.position}",
        }
        if self._secret:
            headers["Holdfast-Signature"] = signature(self._secret, int(time.time()), body)
        about = {"thread": thread, "position": notice.position, "occasion": notice.occasion, "receiver": receiver.host}
        try:
            async with asyncio.timeout(RECEIVER_SECONDS):
                answer = await self._http.post(receiver.url, content=body, headers=headers)
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise _NotNow(f"{receiver.host}: {type(error).__name__}") from None
        if answer.is_success:
            log.info("notified", **about)
        elif 400 <= answer.status_code < 500 and answer.status_code not in TRANSIENT:
            log.error("notice_refused", status=answer.status_code, **about)
        else:
            raise _NotNow(f"{receiver.host}: HTTP {answer.status_code}", retry_after(answer.headers))
        return answer.is_success

    @property
    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(follow_redirects=False, timeout=RECEIVER_SECONDS)
        return self._client


class _NotNow(Exception):
    """A receiver did not take it, and may later."""

    def __init__(self, why: str, delay: timedelta | None = None) -> None:
        super().__init__(why)
        self.delay = delay


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """What `Holdfast-Signature` says: the time, and HMAC-SHA256 over time, a dot, and the body.

    Args:
        secret: Shared with the receiver.
        timestamp: Seconds since 1970. A receiver refuses one that is some minutes old.
        body: As it is sent.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def open_notifier(settings: Settings, *, ui: str | None) -> Notifier:
    """The notifier that the settings describe.

    Args:
        settings: From the environment.
        ui: Temporal's Web UI, for links; None where it is not known.

    Raises:
        SettingsError: A receiver cannot be used.
    """
    secret, webhooks = settings.webhook_secret, settings.webhooks
    receivers = (
        read_receivers(webhooks.get_secret_value(), insecure=settings.webhooks_insecure) if webhooks is not None else ()
    )
    links = Links(ui=ui, gateway=settings.gateway_url)
    return Notifier(receivers, secret=secret.get_secret_value() if secret else None, links=links)
