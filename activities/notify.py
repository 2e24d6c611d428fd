"""`notify`: sends webhook notices that a request is open, or that a run is blocked or has ended.

1. Temporal retries until each receiver answers 2xx, or rejects the notice for good (4xx except 408 and 429).
2. The heartbeat records which receivers have the notice, so that a retry sends it only to the others. If a worker dies
   at the wrong moment, a receiver gets the notice twice, with the same `Idempotency-Key`: thread and position.
3. Redirects are not followed: a notice goes only to the configured URL.
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
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import calling_thread
from holdfast.activities.llm_calls.retry_after import retry_after
from holdfast.activities.notify_formats import Links, encode_notice
from holdfast.activities.safe_logs import SafeLogger
from holdfast.config.settings import Settings
from holdfast.config.webhooks import Receiver, read_receivers
from holdfast.core.run.contracts.record import Notice, Notified

RECEIVER_SECONDS = 8.0
"""Time limit of each receiver. All are sent to concurrently; an attempt of the activity has 30 s (`QUICK`,
`holdfast/core/run/contracts/table.py`)."""
TRANSIENT = (408, 429)
"""Client errors after which a retry makes sense."""

log = SafeLogger(__name__)


class Notifier:
    """Sends notices to webhook receivers.

    Args:
        receivers: Where to send notices; empty if the worker has no webhooks.
        secret: Signs the notices; None to leave them unsigned.
        links: Addresses for inspecting the run and sending decisions.
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
        """See `holdfast.core.run.contracts.table.NOTIFY`."""
        past = activity.info().heartbeat_details
        done: dict[str, bool] = dict(past[0]) if past else {}  # receiver → True if it accepted, False if it rejected
        failures: list[_TransientFailure] = []

        async def send(receiver: Receiver) -> None:
            try:
                done[receiver.id] = await self._send(receiver, notice)
            except _TransientFailure as failure:
                failures.append(failure)
            else:
                activity.heartbeat(done)

        receivers = [receiver for receiver in self.receivers if receiver.wants(notice.occasion)]
        await asyncio.gather(*(send(receiver) for receiver in receivers if receiver.id not in done))
        if failures:
            raise ApplicationError(
                f"not delivered yet: {'; '.join(map(str, failures))}",
                type="ReceiverUnavailable",
                next_retry_delay=max((failure.delay for failure in failures if failure.delay), default=None),
            )
        return Notified(receivers=sum(done.values()))

    async def _send(self, receiver: Receiver, notice: Notice) -> bool:
        """Send the notice to one receiver; False if the receiver rejected it for good.

        Raises:
            _TransientFailure: A later attempt may succeed.
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
        fields = {"thread": thread, "position": notice.position, "occasion": notice.occasion, "receiver": receiver.host}
        try:
            async with asyncio.timeout(RECEIVER_SECONDS):
                response = await self._http.post(receiver.url, content=body, headers=headers)
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise _TransientFailure(f"{receiver.host}: {type(error).__name__}") from None
        if response.is_success:
            log.info("notified", **fields)
        elif 400 <= response.status_code < 500 and response.status_code not in TRANSIENT:
            log.error("notice_refused", status=response.status_code, **fields)
        else:
            raise _TransientFailure(f"{receiver.host}: HTTP {response.status_code}", retry_after(response.headers))
        return response.is_success

    @property
    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(follow_redirects=False, timeout=RECEIVER_SECONDS)
        return self._client


class _TransientFailure(Exception):
    """A receiver did not accept the notice, and may later."""

    def __init__(self, reason: str, delay: timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Compute the `Holdfast-Signature` header: the time, and HMAC-SHA256 over the time, a dot, and the body.

    Args:
        secret: Shared with the receiver.
        timestamp: Seconds since 1970. Receivers should reject one that is some minutes old.
        body: The body as sent.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def open_notifier(settings: Settings, *, ui: str | None) -> Notifier:
    """Return the notifier that the settings describe.

    Args:
        settings: From the environment.
        ui: Temporal's Web UI, for links; None if it is unknown.

    Raises:
        SettingsError: A receiver cannot be used.
    """
    secret, webhooks = settings.webhook_secret, settings.webhooks
    receivers = (
        read_receivers(webhooks.get_secret_value(), insecure=settings.webhooks_insecure) if webhooks is not None else ()
    )
    links = Links(ui=ui, gateway=settings.gateway_url)
    return Notifier(receivers, secret=secret.get_secret_value() if secret else None, links=links)
